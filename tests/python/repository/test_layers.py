# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layers.py: this repository keeps its rules, and each rule is seen to bite."""

from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT, script

SPDX = "SPDX-License-Identifier: Apache-2.0\n"


@pytest.fixture(scope="module")
def layers() -> ModuleType:
    return script("check_layers")


def test_this_repository_keeps_its_rules(layers: ModuleType) -> None:
    assert layers.problems(ROOT) == []


def test_the_files_of_this_repository_are_looked_at(layers: ModuleType) -> None:
    seen = set(layers.files(ROOT))
    assert {"CMakeLists.txt", "scripts/test", "tests/python/repository/test_layers.py"} <= seen
    assert "include/potl/core/result.hpp" in seen


@pytest.mark.parametrize(
    ("path", "include", "problem"),
    [
        ("include/potl/core/a.hpp", "<potl/crypto/b.hpp>", "core must not include crypto"),
        ("src/crypto/a.cpp", "<potl/numeric/b.hpp>", "crypto must not include numeric"),
        ("src/numeric/a.cpp", "<potl/transcript/b.hpp>", "numeric must not include transcript"),
        ("src/transcript/a.cpp", "<potl/checks/b.hpp>", "transcript must not include checks"),
        ("include/potl/checks/a.hpp", "<potl/verify.hpp>", "checks must not include top"),
        ("include/potl/checks/pev.hpp", "<potl/checks/replay.hpp>", "do not know each other"),
        ("src/checks/replay_a.cpp", '"pev.hpp"', "do not know each other"),
        ("src/verify/verify.cpp", "<potl/libtorch/b.hpp>", "top must not include libtorch"),
        ("src/report/a.cpp", "<torch/torch.h>", "top must not include <torch/torch.h>"),
        ("src/numeric/a.cpp", "<openssl/evp.h>", "numeric must not include <openssl/evp.h>"),
        ("include/potl/crypto/a.hpp", "<openssl/evp.h>", "a public header must not include"),
        ("include/potl/transcript/a.hpp", "<nlohmann/json.hpp>", "a public header must not"),
        ("include/potl/numeric/a.hpp", "<Eigen/Dense>", "a public header must not include"),
        ("include/potl/core/a.hpp", '"../../../src/core/b.hpp"', "must not include a private"),
        ("src/core/a.cpp", '"crypto/b.hpp"', "core must not include crypto"),
        ("src/transcript/a.cpp", "<potl/evidence/b.hpp>", "transcript must not include evidence"),
        ("src/checks/pev/a.cpp", "<potl/checks/detail/replay_b.hpp>", "do not know each other"),
        ("examples/04_libtorch/a.cpp", "<potl/core/detail/b.hpp>", "no header of potl's detail/"),
    ],
)
def test_an_include_against_the_arrows_is_named(
    layers: ModuleType, tmp_path: Path, path: str, include: str, problem: str
) -> None:
    for other in ("src/checks/pev.hpp", "src/core/b.hpp", "src/crypto/b.hpp"):
        (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / other).write_text("// " + SPDX)
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"// {SPDX}#  include {include}\n")
    found = layers.problems(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(f"{path}:2: ")
    assert problem in found[0]


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("src/crypto/a.cpp", "<openssl/evp.h>"),
        ("src/checks/replay/replay_plan.cpp", "<potl/checks/replay.hpp>"),
        ("src/checks/exact_replay.cpp", "<potl/checks/exact_replay.hpp>"),
        ("include/potl/checks/replay.hpp", "<potl/checks/request.hpp>"),
        ("include/potl/libtorch/a.hpp", "<torch/torch.h>"),
        ("include/potl/potl.hpp", "<potl/checks/replay.hpp>"),
        ("src/core/a.cpp", "<fcntl.h>"),
    ],
)
def test_an_include_along_the_arrows_is_fine(
    layers: ModuleType, tmp_path: Path, path: str, include: str
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(f"// {SPDX}#include {include}\n")
    assert layers.problems(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("src/core/a.cpp", "int a;\n", "src/core/a.cpp: no line 'SPDX"),
        ("scripts/a", "#!/bin/sh\n", "scripts/a: no line 'SPDX"),
        ("a.py", f"# {SPDX}\n# \u00e4\n", "a.py:3: sources are ASCII"),
        ("a.py", f"# {SPDX}\tx = 1\n", "a.py:2: tab"),
        ("kernels/a.hpp", f"// {SPDX}std::countl_zero(x)\n", "a.hpp:2: nvcc makes a constant"),
        ("include/potl/a.hpp", f"// {SPDX}POTL_ANYWHERE std::bit_width(x)\n", "a constant"),
        ("src/libtorch/a.cpp", f"// {SPDX}x.sum({{0, 2}}, true);\n", "a.cpp:2: ambiguous in torch"),
        ("src/libtorch/a.cpp", f"// {SPDX}at::std_mean(\n    x, {{0, n}});\n", "a.cpp:2: ambig"),
        ("src/libtorch/a.cpp", f"// {SPDX}x.norm(2, {{}}, true);\n", "a.cpp:2: ambiguous in"),
        ("docs/a.md", "x" * 25601, "docs/a.md: 25601 bytes"),
        ("docs/a.md", "cd /ro" + "ot/potl\n", "docs/a.md:1: names a path of one machine"),
        ("python/potl/_task/stem.py", f"# {SPDX}", "call it _stem.py"),
        ("python/potl/_stem.py", f"# {SPDX}", "it lies in no package"),
        ("python/potl/_part/_a.py", f"# {SPDX}", "_part is not among PACKAGES"),
    ],
)
def test_a_file_against_the_rules_is_named(
    layers: ModuleType, tmp_path: Path, path: str, text: str, problem: str
) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text, encoding="utf-8")
    found = layers.problems(tmp_path)
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    "call",
    ["x.sum({1, 2})", "x.sum({0})", "x.sum({0, 2, 3})", "at::zeros({0, n})", "x.sum(all{0, 2})"],
)
def test_a_call_that_every_torch_understands_is_fine(
    layers: ModuleType, tmp_path: Path, call: str
) -> None:
    path = tmp_path / "src/libtorch/a.cpp"
    path.parent.mkdir(parents=True)
    path.write_text(f"// {SPDX}{call};\n")
    assert layers.problems(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    ["x: dict[str, Any] = {}\n", "def f(x: Mapping[str, Any]) -> MutableMapping[str, Any]: ...\n"],
)
def test_a_dictionary_of_anything_is_named(layers: ModuleType, tmp_path: Path, text: str) -> None:
    path = module(tmp_path, "_task/_a", text)
    assert layers.problems(tmp_path) == [
        f"{path}:2: say what the dictionary holds: object, or a TypedDict"
    ]


def test_an_allowance_is_used_up(layers: ModuleType, tmp_path: Path) -> None:
    line = "Tree = dict[str, Any]\n"
    path = module(tmp_path, "_task/_values", line)
    assert layers.problems(tmp_path) == []
    module(tmp_path, "_task/_values", line + "x = 1\n" + line)
    assert layers.problems(tmp_path) == [
        f"{path}:4: say what the dictionary holds: object, or a TypedDict"
    ]
    module(tmp_path, "_task/_values", "")
    assert layers.problems(tmp_path) == [
        f"{path}: has 0 untyped dictionaries: lower UNTYPED of check_layers.py"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "from .._verify import _b\n",
        "from .._verify._b import what\n",
        "def late() -> None:\n    from .._verify._b import what\n",
        "if TYPE_CHECKING:\n    from .._verify._b import What\n",
    ],
)
def test_an_import_that_points_up_is_named(layers: ModuleType, tmp_path: Path, text: str) -> None:
    below = module(tmp_path, "_task/_a", text)
    module(tmp_path, "_verify/_b", "from .. import _core\nfrom .._task import _c\n")
    module(tmp_path, "_task/_c", "")
    line = text.count("\n") + 1
    assert layers.problems(tmp_path) == [
        f"{below}:{line}: _task must not import _verify (_verify._b)"
    ]


@pytest.mark.parametrize("text", ["from .._attacks import Scene\n", "from .._attacks import _b\n"])
def test_attacks_are_played_by_the_demo_alone(
    layers: ModuleType, tmp_path: Path, text: str
) -> None:
    module(tmp_path, "_attacks/__init__", "from ._b import Scene\n")
    module(tmp_path, "_attacks/_b", "x = _core.rule_enabled('a.b')\n")
    module(tmp_path, "_cli/_demo", text)
    assert layers.problems(tmp_path) == []
    other = module(tmp_path, "_cli/_a", text)
    assert layers.problems(tmp_path) == [f"{other}:2: only _cli._demo imports _attacks"]


@pytest.mark.parametrize(
    "text", ["rule_enabled('a.b')\n", "_core.set_rule_enabled('a.b', False)\n", "_core_hooks\n"]
)
def test_a_look_at_the_switches_of_rules_is_named(
    layers: ModuleType, tmp_path: Path, text: str
) -> None:
    path = module(tmp_path, "_job/_a", f"\n{text}")
    [found] = layers.problems(tmp_path)
    assert found.startswith(f"{path}:3: ")
    assert found.endswith(" is for tests and attacks")


def test_modules_in_a_circle_are_named(layers: ModuleType, tmp_path: Path) -> None:
    module(tmp_path, "_task/_a", "from ._b import what\n")
    module(tmp_path, "_task/_b", "def late() -> None:\n    from . import _a\n")
    [found] = layers.problems(tmp_path)
    assert "modules in a circle" in found
    assert "_task._a" in found
    assert "_task._b" in found


def module(root: Path, name: str, text: str) -> str:
    """Writes a module of potl; its path."""
    file = root / f"python/potl/{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"# {SPDX}{text}")
    return file.relative_to(root).as_posix()


def test_build_folders_and_seeds_are_not_looked_at(layers: ModuleType, tmp_path: Path) -> None:
    for folder in ("build", "build-asan", ".venv", "tests/fuzz/corpus", ".mypy_cache"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("no licence")
    assert layers.problems(tmp_path) == []
