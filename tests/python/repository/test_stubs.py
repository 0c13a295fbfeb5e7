# SPDX-License-Identifier: Apache-2.0
"""The stubs of the compiled modules name what the modules have: no more, no less."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import potl

FOLDER = Path(potl.__file__).parent
# Inherited, or added by pybind11 to every class.
OF_EVERY_CLASS = set(dir(type("Empty", (), {}))) | {
    "__getstate__",
    "__setstate__",
}

IMPORTED = {"described elsewhere"}


def declared(stub: str) -> dict[str, set[str]]:
    """Names of a stub, with those of the members of classes; names of types alone are left out."""
    out: dict[str, set[str]] = {}
    types = {"Protocol", "TypedDict"}
    for node in ast.parse((FOLDER / stub).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            out[node.name] = set()
        elif isinstance(node, ast.ImportFrom) and not stub.startswith("_core"):
            out.update({one.asname: IMPORTED for one in node.names if one.asname})
        elif isinstance(node, ast.ClassDef) and types & set(map(ast.unparse, node.bases)):
            types.add(node.name)
        elif isinstance(node, ast.ClassDef):
            members = set()
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    members.add(member.name)
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    members.add(member.target.id)
            out[node.name] = members
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and ast.unparse(node.annotation) != "TypeAlias"
        ):
            out[node.target.id] = set()
    return out


@pytest.mark.parametrize(
    ("module", "stubs"),
    [
        (
            "_core",
            [
                "_core.pyi",
                "_core_arithmetic.pyi",
                "_core_checks.pyi",
                "_core_dispute.pyi",
                "_core_documents.pyi",
                "_core_extra_task.pyi",
                "_core_keys.pyi",
                "_core_spot_check.pyi",
                "_core_statistics.pyi",
            ],
        ),
        ("_torch", ["_torch.pyi"]),
    ],
)
def test_stubs_name_what_the_module_has(module: str, stubs: list[str]) -> None:
    if module == "_torch":
        pytest.importorskip("torch")
    compiled = importlib.import_module(f"potl.{module}")
    names = {name: members for stub in stubs for name, members in declared(stub).items()}
    own = {name for name in vars(compiled) if not name.startswith("_")}
    assert own == set(names)
    for name, members in names.items():
        value = getattr(compiled, name)
        is_described = isinstance(value, type) and members is not IMPORTED
        if is_described and not issubclass(value, Exception):
            found = {one for one in vars(value) if "pybind11" not in one}
            found -= OF_EVERY_CLASS | {"__init__", "__module__", "__doc__"}
            stated = members - OF_EVERY_CLASS - {"__init__"}
            assert found == stated, name
