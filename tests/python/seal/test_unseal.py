# SPDX-License-Identifier: Apache-2.0
"""A sealed job is opened whole or not at all, whoever made it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import transcript_helpers as helpers

import potl
from potl import _core
from potl._cli import _cli
from potl._remote._sealed import FRAME_BYTES, Enclosing
from potl._seal import _contents, _frames, _unseal
from potl._seal._contents import Contents

SEED = 1
KEY, OTHER = _core.OpeningKey.generate(), _core.OpeningKey.generate()
FRAME = FRAME_BYTES + 16
HEAD = 84
JOB = {"job.json": helpers.job_text()}
HOSTILE = (potl.MalformedError, potl.MismatchError, potl.LimitError)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "box.pem"
    path.write_text(KEY.to_pem())
    return path


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The folder in which something is unsealed."""
    path = tmp_path / "there"
    path.mkdir()
    return path


def listed(files: dict[str, bytes]) -> dict[str, Any]:
    return {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }


def stream(files: dict[str, bytes], /, **changes: Any) -> bytes:
    """What is encrypted, as docs/format/sealed_job.md has it."""
    document = {"task": "trainer:build", "arguments": [], "files": listed(files), **changes}
    return framed_list(json.dumps(document).encode(), files)


def framed_list(text: bytes, files: dict[str, bytes]) -> bytes:
    return len(text).to_bytes(8, "big") + text + b"".join(files[name] for name in sorted(files))


def sealed(path: Path, plain: bytes, key: _core.OpeningKey = KEY) -> Path:
    head = b"potl-sealed-job-v1\n" + key.public_key.raw.hex().encode() + b"\n"
    path.write_bytes(head + b"".join(Enclosing(key.public_key, head).take(plain, last=True)))
    return path


def refused(
    path: Path, there: Path, key: Path, error: Any = HOSTILE, match: str | None = None
) -> None:
    with pytest.raises(error, match=match):
        potl.unseal(path, there / "order", key=key)
    assert list(there.iterdir()) == []


def test_what_was_sealed_is_written_and_not_run(tmp_path: Path, there: Path, key: Path) -> None:
    marker = tmp_path / "ran"
    code = f"open({str(marker)!r}, 'w')\n".encode()
    large = random.Random(SEED).randbytes(2 * FRAME_BYTES + 1)
    files = {**JOB, "trainer.py": code, "data/a/large": large, "data/none": b"", "z e.txt": b"z"}
    told: list[tuple[int, int]] = []
    order = potl.unseal(
        sealed(tmp_path / "job.sealed", stream(files, arguments=["--lr", "0.1"])),
        there / "order",
        key=key,
        progress=lambda done, total: told.append((done, total)),
    )
    for name, data in files.items():
        written = there / "order" / name
        assert written.read_bytes() == data
        assert stat.S_IMODE(written.stat().st_mode) & 0o7133 == 0
    assert dict(order.files) == {name: len(data) for name, data in files.items()}
    assert (order.task, order.arguments) == ("trainer:build", ("--lr", "0.1"))
    assert order.job.core.text == JOB["job.json"]
    assert stat.S_IMODE((there / "order").stat().st_mode) == 0o700
    assert list(there.iterdir()) == [there / "order"]
    assert told[-1] == (sum(order.files.values()),) * 2
    assert not marker.exists()


def test_neither_the_task_nor_torch_is_imported(tmp_path: Path, there: Path, key: Path) -> None:
    path = sealed(tmp_path / "x", stream({**JOB, "trainer.py": b"", "torch.py": b"1 / 0"}))
    script = (
        "import sys, potl; potl.unseal(*sys.argv[1:3], key=sys.argv[3]); "
        "assert not {'torch', 'trainer'} & {*sys.modules}"
    )
    words = [sys.executable, "-c", script, str(path), str(there / "order"), str(key)]
    done = subprocess.run(words, cwd=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (there / "order/torch.py").exists()


def test_contents_are_a_digest_of_everything(tmp_path: Path, there: Path, key: Path) -> None:
    def contents(files: dict[str, bytes], **changes: Any) -> str:
        path = sealed(tmp_path / "job.sealed", stream(files, **changes))
        return potl.unseal(path, there / f"order{len(list(there.iterdir()))}", key=key).contents

    files = {**JOB, "a": b"1", "b": b"2"}
    first = contents(files)
    assert contents(files) == first
    document = {"arguments": [], "files": listed(files), "task": "trainer:build"}
    assert hashlib.sha256(_core.canonical_json(document)).hexdigest() == first
    others = [
        contents({**files, "a": b"2"}),
        contents({**files, "c": b""}),
        contents({**JOB, "a": b"1", "c": b"2"}),
        contents(files, task="trainer:other"),
        contents(files, arguments=["x"]),
    ]
    assert len({first, *others}) == 6


@pytest.mark.parametrize(
    "name",
    [
        "/a",
        "../a",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        "",
        ".",
        "a\0b",
        "a\nb",
        "a\x1b[2Jb",
        "a\u202eb",
        "a\ufe0fb",
        "a\xa0b",
        "a /b",
        "\ud800",
        "a" * 256,
        "\u00e9" * 128,
        "/".join(["a" * 200] * 6),
        "/".join("a" * 33),
        "__pycache__/a.pyc",
        "a/__PyCache__/a.pyc",
        ".git/config",
        ".hg/hgrc",
        "data/.HG/hgrc",
        "a/.GIT",
        "HEAD",
        "trainer.cpython-311-x86_64-linux-gnu.so",
        "a/trainer.PYD",
        "trainer.pyc",
        "runs/1/transcript.log",
        "Transcript.log",
        "runs/1/key.pem",
    ],
    ids=lambda name: ascii(name)[:24],
)
def test_a_name_that_is_no_plain_relative_one_is_refused(
    tmp_path: Path, there: Path, key: Path, name: str
) -> None:
    refused(sealed(tmp_path / "x", stream({**JOB, name: b"a"})), there, key, potl.MalformedError)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "a/b"),
        ("a/b", "a/b/c"),
        ("a", "A"),
        ("a/b", "A/c"),
        ("stra\u00dfe", "strasse"),
        ("\u00e9", "e\u0301"),
        ("JOB.json", "x"),
    ],
    ids=ascii,
)
def test_two_names_that_are_one_on_some_disk_are_refused(
    tmp_path: Path, there: Path, key: Path, one: str, other: str
) -> None:
    path = sealed(tmp_path / "x", stream({**JOB, one: b"1", other: b"2"}))
    refused(path, there, key, potl.MalformedError, "one name on some disks")


def test_a_package_does_not_hide_the_module_that_is_read(
    tmp_path: Path, there: Path, key: Path
) -> None:
    files = {**JOB, "trainer.py": b"", "trainer/__init__.py": b"1 / 0"}
    refused(sealed(tmp_path / "x", stream(files)), there, key, match='in the place of "trainer.py')
    files = {**JOB, "data.py": b"", "data/a.py": b"", "a/__init__.py": b"", "head/ahead": b""}
    potl.unseal(sealed(tmp_path / "y", stream(files)), there / "order", key=key)


def test_folders_are_counted_before_they_are_made(
    tmp_path: Path, there: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_contents, "_MAX_PLACES", 33)
    deep = "/".join("a" * 32)
    potl.unseal(sealed(tmp_path / "x", stream({**JOB, deep: b""})), there / "order", key=key)
    shutil.rmtree(there / "order")
    path = sealed(tmp_path / "y", stream({**JOB, deep: b"", "b": b""}))
    refused(path, there, key, potl.MalformedError, "more files and folders")


def test_long_names_take_memory_once() -> None:
    names = [f"\U00020000{n}/" + "/".join(["a" * 30] * 31) for n in range(100)]
    tracemalloc.start()
    try:
        _contents.require_names(names)
        assert tracemalloc.get_traced_memory()[1] < 40 * sum(map(len, names))
    finally:
        tracemalloc.stop()


def changed(**member: Any) -> Callable[[dict[str, Any]], None]:
    return lambda files: files["a"].update(member)


LISTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a link": changed(link="/etc/passwd"),
    "a mode": changed(mode=0o4755),
    "a device": lambda files: files.update(a="device"),
    "no size": lambda files: files["a"].pop("size"),
    "no digest": lambda files: files["a"].pop("sha256"),
    "a huge size": changed(size=2**53 - 1),
    "a size too many": changed(size=2),
    "a size too few": changed(size=0),
    "a negative size": lambda files: (files["a"].update(size=-1), files["b"].update(size=3)),
    "a size that is true": changed(size=True),
    "a size in words": changed(size="1"),
    "another digest": changed(sha256="00" * 32),
    "a digest of nothing": changed(sha256=""),
    "a digest in capitals": changed(sha256=hashlib.sha256(b"a").hexdigest().upper()),
    "no job": lambda files: files.update(j=files.pop("job.json")),
}


@pytest.mark.parametrize("what", LISTS)
def test_a_list_that_says_anything_else_is_refused(
    tmp_path: Path, there: Path, key: Path, what: str
) -> None:
    files = {**JOB, "a": b"a", "b": b"b"}
    documents = listed(files)
    LISTS[what](documents)
    plain = stream(files, files=documents)
    refused(sealed(tmp_path / "x", plain), there, key, potl.MalformedError)


@pytest.mark.parametrize(
    "member",
    [
        {"more": 1},
        {"task": 7},
        {"task": "trainer"},
        {"task": "os; rm:build"},
        {"task": "a\u202e:build"},
        {"task": "--help:x"},
        {"arguments": "x"},
        {"arguments": [1]},
        {"files": []},
        {"files": None},
    ],
    ids=str,
)
def test_other_members_are_refused(
    tmp_path: Path, there: Path, key: Path, member: dict[str, Any]
) -> None:
    refused(sealed(tmp_path / "x", stream(JOB, **member)), there, key, potl.MalformedError)


STREAMS = {
    "nothing": b"",
    "no whole size": bytes(7),
    "no list": bytes(8),
    "a list without end": b"\xff" * 8 + b"{}",
    "a list longer than the stream": (1 << 24).to_bytes(8, "big") + b"{}",
    "no members": framed_list(b"{}", {}),
    "an array": framed_list(b"[]", {}),
    "no text": framed_list(b"\xff", {}),
    "a deep list": framed_list(b"[" * 1000, {}),
    "no job in job.json": stream({"job.json": b"{}"}),
    "an empty job": stream({"job.json": b""}),
    "a byte more": stream(JOB) + b"x",
    "a byte less": stream(JOB)[:-1],
    "a name twice": framed_list(
        b'{"task":"a:b","arguments":[],"files":{"a":{"size":0,"sha256":"%s"},%s}}'
        % (
            hashlib.sha256().hexdigest().encode(),
            json.dumps(listed(JOB | {"a": b""}))[1:-1].encode(),
        ),
        JOB,
    ),
}


@pytest.mark.parametrize("what", STREAMS)
def test_a_stream_that_is_no_list_and_its_files_is_refused(
    tmp_path: Path, there: Path, key: Path, what: str
) -> None:
    refused(sealed(tmp_path / "x", STREAMS[what]), there, key)


def test_a_job_beyond_all_sizes_is_refused(tmp_path: Path, there: Path, key: Path) -> None:
    plain = stream({"job.json": b"[" * ((16 << 20) + 1)})
    refused(sealed(tmp_path / "x", plain), there, key)


def test_a_list_that_takes_too_much_memory_is_refused(
    tmp_path: Path, there: Path, key: Path
) -> None:
    path = sealed(tmp_path / "x", framed_list(b" " * ((16 << 20) + 1), {}))
    refused(path, there, key, potl.MalformedError, "longer than it can be")


def test_lists_that_are_drawn_are_taken_or_refused() -> None:
    draw = random.Random(SEED)
    good = json.dumps({"task": "a:b", "arguments": ["x"], "files": listed({**JOB, "a/b": b"a"})})
    pieces = ['"', "{", "}", "[", "]", ":", ",", "/", "..", "\\u0000", "null", "-1", "1e999", "a/b"]
    taken = 0
    for _ in range(2000):
        at = draw.randrange(len(good))
        put = draw.choice([*pieces, chr(draw.randrange(0x300))])
        text = good[:at] + put + good[at + draw.choice((0, len(put))) :]
        try:
            contents = Contents.parse(text.encode())
        except potl.MalformedError:
            continue
        assert Contents.parse(contents.text()) == contents
        taken += 1
    assert 0 < taken < 1000


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return sealed(tmp_path / "small", stream({**JOB, "a": b"a"}))


def test_a_file_of_which_any_byte_was_turned_is_refused(
    tmp_path: Path, there: Path, key: Path, small: Path
) -> None:
    raw = small.read_bytes()
    errors = (potl.MalformedError, potl.MismatchError, potl.UnsupportedError, potl.UsageError)
    for at in range(len(raw)):
        small.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        refused(small, there, key, errors)


def test_a_file_that_was_cut_or_grew_is_refused(
    tmp_path: Path, there: Path, key: Path, small: Path
) -> None:
    raw = small.read_bytes()
    for size in range(len(raw)):
        small.write_bytes(raw[:size])
        refused(small, there, key)
    for more in (b"x", bytes(16), bytes(17), bytes(FRAME), raw):
        small.write_bytes(raw + more)
        refused(small, there, key)


def test_a_file_that_shrinks_while_it_is_read_is_refused(small: Path) -> None:
    with small.open("rb", buffering=0) as file:
        plain = _frames.Plain(file, KEY)
        os.truncate(small, 200)
        with pytest.raises(potl.MalformedError, match="it is not whole"):
            b"".join(plain.read(plain.left))


FRAMES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "swapped": lambda f: [f[0], f[2], f[1], *f[3:]],
    "repeated": lambda f: [f[0], f[1], f[1], *f[3:]],
    "cut": lambda f: f[:-1],
    "last one altered": lambda f: [*f[:-1], f[-1][:-1] + bytes([f[-1][-1] ^ 1])],
    "one more": lambda f: [*f, f[-1]],
}


@pytest.mark.parametrize("what", FRAMES)
def test_frames_are_taken_in_their_order_and_nothing_is_left(
    tmp_path: Path, there: Path, key: Path, what: str
) -> None:
    files = {**JOB, "a": random.Random(SEED).randbytes(4 * FRAME_BYTES)}
    path = sealed(tmp_path / "x", stream(files))
    raw, start = path.read_bytes(), HEAD + 32
    frames = [raw[at : at + FRAME] for at in range(start, len(raw), FRAME)]
    assert len(frames) == 5
    path.write_bytes(raw[:start] + b"".join(FRAMES[what](frames)))
    refused(path, there, key)


def test_a_file_whose_last_frame_is_a_whole_one_opens(
    tmp_path: Path, there: Path, key: Path
) -> None:
    rest = -len(stream({**JOB, "a": bytes(100_000)})) % FRAME_BYTES
    plain = stream({**JOB, "a": bytes(100_000 + rest)})
    assert len(plain) % FRAME_BYTES == 0
    order = potl.unseal(sealed(tmp_path / "x", plain), there / "order", key=key)
    assert order.files["a"] == 100_000 + rest


def test_memory_does_not_grow_with_the_files(tmp_path: Path, there: Path, key: Path) -> None:
    path = sealed(tmp_path / "x", stream({**JOB, "a": bytes(32 * FRAME_BYTES)}))
    potl.unseal(path, there / "first", key=key)  # imports what it needs
    tracemalloc.start()
    try:
        potl.unseal(path, there / "order", key=key)
        assert tracemalloc.get_traced_memory()[1] < 8 * FRAME_BYTES
    finally:
        tracemalloc.stop()


def test_mistakes_have_a_remedy(tmp_path: Path, there: Path, key: Path, small: Path) -> None:
    other = sealed(tmp_path / "other", stream(JOB), OTHER)
    refused(other, there, key, potl.UsageError, f"sealed for the key {OTHER.public_key.raw.hex()}")
    raw = small.read_bytes()
    other.write_bytes(raw[:19] + b"\x1b" + raw[20:])
    refused(other, there, key, potl.UsageError, r"sealed for the key \\u001b")
    refused(tmp_path / "none", there, key, potl.UsageError, "there is no sealed job file")
    refused(tmp_path, there, key, potl.UsageError, "there is no sealed job file")
    refused(key, there, key, potl.MalformedError, "box.pem: it is not a sealed job")
    later = tmp_path / "later"
    later.write_bytes(small.read_bytes().replace(b"job-v1", b"job-v2", 1))
    refused(later, there, key, potl.UnsupportedError, "a newer potl may read it")
    signing = tmp_path / "signing.pem"
    signing.write_text(_core.SigningKey.generate().to_pem())
    refused(small, there, signing, potl.MalformedError, "--encryption")
    with pytest.raises(potl.UsageError, match="there is no folder"):
        potl.unseal(small, there / "no" / "order", key=key)


@pytest.mark.parametrize("what", ["a file in it", "a file", "a link", "a dangling link"])
def test_nothing_is_replaced(tmp_path: Path, key: Path, small: Path, what: str) -> None:
    target = tmp_path / "order"
    if what == "a file in it":
        target.mkdir()
        (target / "kept").touch()
    elif what == "a file":
        target.touch()
    else:
        if what == "a link":
            (tmp_path / "elsewhere").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(potl.UsageError, match="is not an empty folder"):
        potl.unseal(small, target, key=key)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_is_filled(there: Path, key: Path, small: Path) -> None:
    (there / "order").mkdir()
    assert potl.unseal(small, there / "order", key=key).files["a"] == 1


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    yield


@pytest.mark.usefixtures("full")
def test_a_full_disk_is_named_and_nothing_is_left(there: Path, key: Path, small: Path) -> None:
    refused(small, there, key, potl.StorageError, "No space left")


def test_a_locale_that_lacks_a_letter_is_named_with_a_remedy(there: Path, key: Path) -> None:
    path = sealed(there.parent / "x", stream({**JOB, "data/zahlen\u00e4.npz": b"x"}))
    order = there / "order"
    code = f"import potl; potl.unseal({str(path)!r}, {str(order)!r}, key={str(key)!r})"
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **ascii_only},
        capture_output=True,
        check=False,
    )
    assert b"potl._core.StorageError: this locale cannot write" in done.stderr
    assert b"LC_ALL=C.UTF-8" in done.stderr and not [*there.iterdir()]


def test_a_program_that_is_stopped_leaves_nothing(
    there: Path, key: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_unseal.Job, "of_run", stop)
    refused(small, there, key, KeyboardInterrupt)


def test_the_command_line_names_what_follows(
    there: Path, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {**JOB, **{f"data/{n}": b"x" for n in range(30)}}
    path = sealed(tmp_path / "x", stream(files, task="a.b:c", arguments=["two words", "\x1b[2J"]))
    # The key is where the trainer stands now, and the command is for within the folder, which may
    # lie elsewhere than its name says.
    elsewhere = tmp_path / "some" / "where"
    elsewhere.mkdir(parents=True)
    there.rmdir()
    there.symlink_to(elsewhere)
    words = ["unseal", str(path), str(there / "an order"), "--open-with", str(key)]
    assert _cli.run(words) == 0
    shown = capsys.readouterr().out
    assert f"cd '{there}/an order' && potl record a.b:c runs/1 --job job.json" in shown
    assert "-- 'two words'" in shown and "\x1b" not in shown
    (name,) = re.findall(r"--key (\S+)", shown)
    assert (there / "an order" / name).resolve() == Path("trainer.pem").resolve()
    assert "11 more files" in shown and "not proven" in shown
    assert _cli.run(words) == 2
    capsys.readouterr()
    words[2] = str(there / "other")
    assert _cli.run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"] == {name: len(data) for name, data in files.items()}
    assert document["job"] == _core.Job.parse(JOB["job.json"]).id.hex()
    assert document["contents"] in shown
    path.write_bytes(path.read_bytes()[:-1])
    words[2] = str(there / "third")
    assert _cli.run(words) == 4
    assert _frames.head_of(KEY.public_key) == path.read_bytes()[:HEAD]
