# SPDX-License-Identifier: Apache-2.0
"""What the documentation site needs beside mkdocs: a page for every source that docs/ links to, the
C++ reference, and a build that fails on public names without documentation.

mkdocs calls the functions that begin with `on_` (mkdocs.yml, `hooks`).
"""

from __future__ import annotations

import ast
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
LOG = logging.getLogger("mkdocs.potl")
LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)#\s]+)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"^(```\w+) .+$", re.MULTILINE)
DETAIL = re.compile(
    r"^namespace detail \{\n.*?^\}  // namespace detail\n", re.MULTILINE | re.DOTALL
)
PARTS = r"^(Claims|Assumes|Costs?|Cannot \w+|Sources?)\b"
# Declared in another header, or a definition of what is declared above.
ELSEWHERE = re.compile(r"(class|struct) [\w:]+;|template class|static_assert|[^(]*\w::\w+\(|\}")
LANGUAGES = {".py": "python", ".cpp": "cpp", ".hpp": "cpp", ".json": "json", ".txt": "text"}

# The public headers by subject. What lies in a folder detail/ is not written against.
HEADERS = {
    "Verify": ["verify", "policy", "report", "attestation", "core/finding", "core/rules"],
    "Checks": ["checks/replay", "checks/pev", "checks/telemetry", "checks/telemetry_sampler"],
    "Products of matrices": ["checks/freivalds", "checks/freivalds_segment"],
    "Delivered model": ["checks/model"],
    "Checks of your own": ["checks/check", "checks/request", "checks/field", "checks/run_view"],
    "What answers them": ["checks/replayer", "checks/workload"],
    "Extra task": ["checks/extra_task", "checks/extra_task_options", "checks/extra_task_samples"],
    "Spot-check": [
        "checks/spot_check",
        "checks/spot_check_door",
        "checks/spot_check_sgd",
        "checks/spot_check_socket",
        "statistics/displacement",
    ],
    "Disputes": [
        "dispute/game",
        "dispute/message",
        "dispute/entry",
        "dispute/proceedings",
        "dispute/referee",
        "dispute/player",
    ],
    "Transcripts": [
        "transcript/job",
        "transcript/first_steps",
        "transcript/writer",
        "transcript/state",
        "transcript/operator_trace",
    ],
    "Commitments": [
        "transcript/commitment",
        "transcript/snapshot",
        "evidence/evidence",
        "transcript/repetition",
        "transcript/work",
    ],
    "Hashes and signatures": ["crypto/hasher", "crypto/merkle", "crypto/signature"],
    "Encryption": ["crypto/sealing"],
    "Draws": ["crypto/challenge"],
    "Values": ["core/digest", "core/dtype", "core/error", "core/result"],
    "Files": ["core/file", "core/directory_lock", "encoding/json"],
    "Arithmetic": ["numeric/arithmetic", "numeric/gemm", "numeric/convolution"],
    "Functions and sums": ["numeric/elementwise", "numeric/combine", "numeric/reduction"],
    "Rounding logs": ["numeric/rounding_log"],
    "LibTorch": [
        "libtorch/task",
        "libtorch/job",
        "libtorch/recorder",
        "libtorch/workload",
        "libtorch/trace",
        "libtorch/gradients",
    ],
    "Reproducible LibTorch": ["libtorch/arithmetic", "libtorch/random"],
    "CUDA": [
        "cuda/accumulation",
        "cuda/combine",
        "cuda/convolution",
        "cuda/digest",
        "cuda/elementwise",
        "cuda/gemm",
        "cuda/pooling",
        "cuda/queue",
        "cuda/random",
        "cuda/reduction",
        "cuda/resampling",
        "cuda/update",
    ],
}
UMBRELLAS = {"potl", "libtorch/libtorch"}


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are written from sources."""
    pages = {f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")}
    waiting = [target for page in pages for target in linked(page)]
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in done or path.startswith("docs/") or not (ROOT / path).exists():
            continue
        done.add(path)
        text = source_page(path)
        files.append(File.generated(config, place(path), content=text))
        waiting += linked(path) if path.endswith(".md") else inside(path)
    check_headers()
    index = ["# C++ reference", "", "Headers are short, and are their own documentation."]
    for subject, headers in HEADERS.items():
        index += ["", f"## {subject}", "", "| header | what it is |", "|---|---|"]
        for header in headers:
            name = f"reference/cpp/{header.replace('/', '_')}.md"
            text, first = header_page(header)
            files.append(File.generated(config, name, content=text))
            index.append(f"| [`potl/{header}.hpp`]({posixpath.basename(name)}) | {first} |")
    text = "\n".join(index) + "\n"
    files.append(File.generated(config, "reference/cpp/README.md", content=text))
    check_python()
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Block options that only the tests read, and links to sources."""
    where = page.file.src_uri
    origin = where.removeprefix("source/") if where.startswith("source/") else f"docs/{where}"
    if where.startswith("reference/cpp/") or not (ROOT / origin).is_file():
        return markdown  # written here, with the right links
    parts = re.split(r"(^```.*?^```)", RUN.sub(r"\1", markdown), flags=re.MULTILINE | re.DOTALL)

    def moved(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), found[1]))
        if not (ROOT / path).exists() or (ROOT / path) == ROOT / "docs":
            return found[1]
        return posixpath.relpath(place(path), posixpath.dirname(where) or ".")

    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def linked(page: str) -> list[str]:
    """What a page links to, as paths of the repository."""
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    folder = posixpath.dirname(page)
    return [posixpath.normpath(posixpath.join(folder, target)) for target in LINK.findall(text)]


def inside(path: str) -> list[str]:
    """The files of a folder."""
    if not (ROOT / path).is_dir():
        return []
    found = (ROOT / path).rglob("*")
    return [str(one.relative_to(ROOT)) for one in found if one.suffix in LANGUAGES]


def place(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def source_page(path: str) -> str:
    """The page of a file or folder outside docs/."""
    if (ROOT / path).is_dir():
        here = posixpath.dirname(place(path))
        rows = [f"- [{one}]({posixpath.relpath(place(one), here)})" for one in sorted(inside(path))]
        return "\n".join([f"# {path}", "", *rows, ""])
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n````{language}\n{text}````\n"


def header_page(header: str) -> tuple[str, str]:
    """The page of one header, and its first sentence."""
    path = f"include/potl/{header}.hpp"
    text = DETAIL.sub("", (ROOT / path).read_text(encoding="utf-8"))
    lines = text.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("//"))
    opening = "\n".join(line[2:].removeprefix(" ") for line in lines[1:end])
    if not opening:
        LOG.warning("%s says nothing about itself", path)
    for line in undocumented(lines[end:], opening):
        LOG.warning("%s: no comment says what this is: %s", path, line)
    prose = re.sub(r"([\[\]<])", r"\\\1", opening)
    prose = re.sub(PARTS, r"\n**\1**", prose, flags=re.MULTILINE)
    prose = re.sub(r"^ +\* ", "- ", prose, flags=re.MULTILINE)
    prose = re.sub(r"(?<!\n)\n(?=- )", "\n\n", prose, count=1)
    body = [line for line in lines[end:] if not line.startswith(("#pragma", "#include"))]
    code = re.sub(r"\n{3,}", "\n\n", "\n".join(body)).strip("\n")
    first = re.split(r"(?<=\.)\s|\n\n", opening.strip(), maxsplit=1)[0]
    first = " ".join(first.split()).replace("|", "\\|")
    return f"# {path.removeprefix('include/')}\n\n{prose}\n\n```cpp\n{code}\n```\n", first


def undocumented(lines: list[str], opening: str) -> Iterator[str]:
    """Groups of declarations at namespace scope that neither a comment above them nor the comment
    that opens the header explains.
    """
    depth, inside_group, first = 0, False, True
    for line in lines:
        bare = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)
        outside = re.match(r"\s*(inline )?namespace .*\{$|\}  // namespace|#", line)
        if outside or (depth == 0 and not line.strip()):
            inside_group = False
            continue
        if not inside_group:
            inside_group = True
            names = re.findall(r"\b[a-z]+_\w+\b", bare.partition("=")[0])
            said = any(re.search(rf"\b{name}\b", opening) for name in names)
            if not (said or first or line.startswith("//") or ELSEWHERE.match(line)):
                yield line.strip()
            first = False
        depth += bare.count("{") + bare.count("(") - bare.count("}") - bare.count(")")


def check_headers() -> None:
    """Every public header stands in the C++ reference."""
    include = ROOT / "include/potl"
    public = {
        path.relative_to(include).as_posix().removesuffix(".hpp")
        for path in include.rglob("*.hpp")
        if "detail" not in path.parts
    }
    listed = {header for headers in HEADERS.values() for header in headers}
    if listed != public - UMBRELLAS:
        LOG.warning("HEADERS differs: %s", sorted(listed ^ (public - UMBRELLAS)))


def check_python() -> None:
    """Every public name has a docstring and stands in the Python reference."""
    tree = ast.parse((ROOT / "python/potl/__init__.py").read_text(encoding="utf-8"))
    modules = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_MODULES"
    )
    exports = {name: module for module, names in modules.items() for name in names.split()}
    listed = re.findall(
        r"^::: potl\.([\w.]+)$", (ROOT / "docs/reference/python.md").read_text(), re.MULTILINE
    )
    package = griffe.load("potl", search_paths=[ROOT / "python"], resolve_aliases=True)
    public = {}
    for name, module in exports.items():
        if module == "_" + name:  # a package that is offered as a whole
            public |= {f"{module}.{one}": package[module][one] for one in package[module].exports}
        else:
            public[name] = package[module][name]
    if sorted(listed) != sorted(public):
        LOG.warning("docs/reference/python.md differs: %s", sorted(set(listed) ^ set(public)))
    for what in public.values():
        check_object(what)


def check_object(what: Any) -> None:
    """Warns of an object, or of one of its public functions, that has no docstring."""
    if what.docstring is None:
        LOG.warning("%s has no docstring", what.path)
    for name, member in what.members.items() if what.is_class else ():
        documented = member.is_function or "property" in member.labels
        if documented and not name.startswith("_") and not member.is_alias:
            check_object(member)
