# SPDX-License-Identifier: Apache-2.0
"""What README and docs show is true: examples run, blocks parse, links lead somewhere.

A block that opens with ```python run is executed; all such blocks of a page are one script, in
order, in an empty folder. ```python run=digits puts docs_setup_digits.py beside it and imports all
of it first, so that a page need not repeat how data is loaded (run=recorded: a run to verify).
```python file=trainer.py is written
to that file instead. Of ```console run the lines that begin with "$ " are executed by bash at their
place among the blocks. Other ```python blocks must parse.
"""

import ast
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import programs
import pytest
from places import HELPERS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[ ]*([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)")


@dataclass(frozen=True)
class Block:
    language: str
    options: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2].strip(), found[3], text.count("\n", 0, found.start(3)))
        for found in FENCE.finditer(text)
    ]


def script(page: Path) -> tuple[str, set[str]]:
    """The page's executed blocks, each line where it stands on the page, and what they need."""
    runnable = [block for block in blocks(page) if re.match(r"run|file=", block.options)]
    setups = {
        block.options.partition("=")[2] for block in runnable if block.options.startswith("run=")
    }
    lines = [f"from docs_setup_{setup} import *  # noqa: F403" for setup in sorted(setups)]
    for block in runnable:
        lines += [""] * (block.line - len(lines))
        if block.language == "console":
            lines += shell(block.text)
        elif block.options.startswith("file="):
            lines.append(f"open({block.options[5:]!r}, 'w').write({block.text!r})")
        else:
            lines += block.text.splitlines()
    return ("\n".join(lines) + "\n" if runnable else ""), setups


def shell(text: str) -> list[str]:
    """Each command as a line of Python; an exit code other than 0 is an error."""
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    return [
        f"__import__('subprocess').run(['bash', '-c', {command!r}], check=True)"
        for command in commands
    ]


def execute(file: Path, folder: Path) -> None:
    environment = {**os.environ, "POTL_HOOKS": "0", "XDG_STATE_HOME": str(folder / "state")}
    environment["PATH"] = f"{programs.folder()}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [programs.python(), file],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if script(page)[0]], ids=name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    text, setups = script(page)
    for setup in setups:
        shutil.copy(HELPERS / f"docs_setup_{setup}.py", tmp_path)
    file = tmp_path / f"{page.stem.lower()}_page.py"
    file.write_text(text)
    execute(file, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_python_of_a_page_parses(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            ast.parse("\n" * block.line + block.text, filename=str(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_to_files(page: Path) -> None:
    targets = LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_make_commands_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_reader_has_all_that_a_page_imports(page: Path) -> None:
    """docs_setup_digits.py is beside the examples here, and nowhere else."""
    assert "docs_setup" not in page.read_text(encoding="utf-8")


def test_files_and_commands_of_a_page_are_at_their_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python file=a.py\nprint(1)\n```\n\n"
        "```console run\n$ python a.py \\\n    > b\n1\n$ test -s b\n```\n\n"
        "```python run\nassert open('b').read() == '1\\n'\n```\n"
    )
    text, _ = script(page)
    file = tmp_path / "page.py"
    file.write_text(text)
    execute(file, tmp_path)
    file.write_text(text.replace("test -s b", "test -s c"))
    with pytest.raises(AssertionError, match="test -s c"):
        execute(file, tmp_path)


def test_blocks_keep_their_lines_and_their_setup(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python run=digits\na = 1\n```\ntext\n```python run\nb = a\n```\n")
    text, setups = script(page)
    assert setups == {"digits"}
    assert text.splitlines()[3] == "a = 1"
    assert text.splitlines()[7] == "b = a"


def test_the_soundness_rules_that_the_code_cites_exist() -> None:
    page = (ROOT / "docs/reference/soundness.md").read_text(encoding="utf-8")
    known = set(map(int, re.findall(r"^\*\*Rule (\d+)\.", page, re.MULTILINE)))
    cited = set()
    for folder in ("include", "src", "python", "tests"):
        for file in (ROOT / folder).rglob("*.?pp" if folder in ("include", "src") else "*.py"):
            for numbers in re.findall(
                r"soundness\.md[^;.\n]* rules? ([\d, and]+)", file.read_text()
            ):
                cited |= set(map(int, re.findall(r"\d+", numbers)))
    assert len(cited) >= 10
    assert cited <= known


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lists_and_tables_stand_apart_from_the_text_before_them(page: Path) -> None:
    """Without an empty line GitHub shows a list and the site shows text."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    item = r"(?:[-*] |\d+\. |\|)"
    assert re.findall(rf"^(?!{item}|[ \t#<]).+\n(?={item}).+", text, re.MULTILINE) == []


def test_the_c_plus_plus_of_the_guide_is_that_of_the_examples() -> None:
    examples = [file.read_text() for file in (ROOT / "examples/04_libtorch").glob("*.cpp")]
    known = {line.strip() for text in examples for line in text.splitlines()}
    shown = [one for one in blocks(ROOT / "docs/guide/libtorch.md") if one.language == "cpp"]
    assert len(shown) >= 4
    for block in shown:
        assert [line for line in block.text.splitlines() if line.strip() not in known] == []
