# SPDX-License-Identifier: Apache-2.0
"""What `potl doctor` finds, and that every problem comes with a remedy."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

import potl
from potl import _core
from potl._cli import _cli
from potl._machine import _disk, _doctor
from potl._machine._item import Item


def broken(item: Item) -> bool:
    return item.state == "problem" and bool(item.remedy)


def fake_torch(version: str = "2.13.0", threads: int = 1) -> Any:
    cpu = types.SimpleNamespace(get_cpu_capability=lambda: "AVX2")
    return types.SimpleNamespace(
        __version__=version,
        backends=types.SimpleNamespace(cpu=cpu),
        cuda=types.SimpleNamespace(is_available=lambda: False),
        get_num_threads=lambda: threads,
    )


def unloadable() -> Any:
    raise ImportError("libtorch.so: undefined symbol")


def test_doctor_finds_nothing_wrong_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run(["doctor", "--json", "--directory", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["fine"] is True
    names = {item["name"] for item in document["items"]}
    assert {"potl._core", "OpenSSL", "arithmetic: nan", "processor", "disk", "clock"} <= names
    assert list(tmp_path.iterdir()) == []


def test_missing_operators_are_named_with_the_command_that_builds_them() -> None:
    def missing() -> object:
        raise potl.UnsupportedError("built without torch", "pip install it again")

    [item] = _doctor.operators(missing)
    assert (item.name, item.state) == ("potl.deterministic", "warning")
    assert (item.seen, item.remedy) == ("built without torch", "pip install it again")
    [item] = _doctor.operators(lambda: None)
    assert item.state == "ok"


def test_the_arithmetic_of_this_process_is_listed_check_by_check() -> None:
    checks = _core.fp_environment()
    assert set(checks) >= {"rounding", "underflow", "contraction", "nan"}
    assert all(holds for holds, _ in checks.values())


def test_an_arithmetic_that_is_off_is_a_problem_with_its_cause() -> None:
    [item] = _doctor.arithmetic(
        {"underflow": (False, "MXCSR is 0x9fc0")}, when=" after import torch"
    )
    assert broken(item)
    assert "0x9fc0" in item.seen


def test_a_module_that_does_not_load_is_a_problem() -> None:
    core, [item] = _doctor.module(unloadable)
    assert core is None
    assert broken(item)


def test_a_module_of_another_version_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor, "_version_of", lambda name: "9.9.9")
    fake: Any = types.SimpleNamespace(version=lambda: "0.1.0")
    _, [item] = _doctor.module(lambda: fake)
    assert broken(item)


def built(openssl: str = "OpenSSL 3.0.19", *, together: bool = True) -> Any:
    facts = {"openssl": openssl, "compiler": "12", "hashes_chunks_together": together}
    return types.SimpleNamespace(build_info=lambda: facts)


def test_an_old_openssl_is_a_problem() -> None:
    assert broken(next(iter(_doctor.build(built("OpenSSL 1.1.1n")))))


def test_slower_hashes_are_a_warning_where_something_can_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(machine: str, *, together: bool) -> list[tuple[str, str]]:
        monkeypatch.setattr(_doctor.platform, "machine", lambda: machine)
        items = _doctor.build(built(together=together))
        return [(item.state, item.remedy) for item in items if item.name == "ipsec-mb"]

    assert found("x86_64", together=True) == [("ok", "")]
    [(state, remedy)] = found("x86_64", together=False)
    assert state == "warning"
    assert "apt-get install libipsec-mb-dev" in remedy
    assert found("aarch64", together=False) == []


@pytest.mark.parametrize("version", ["2.10.1", "1.13.0+cu117", "2.9"])
def test_a_torch_that_is_too_old_is_a_problem(version: str) -> None:
    _, [item] = _doctor.framework(fake_torch, version)
    assert broken(item)


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "3.0.0a0"])
def test_a_supported_torch_is_fine(version: str) -> None:
    _, [item] = _doctor.framework(lambda: fake_torch(version), version)
    assert item.state == "ok"


def test_a_torch_that_does_not_load_is_a_problem() -> None:
    _, [item] = _doctor.framework(unloadable, "2.13.0")
    assert broken(item)
    assert "undefined symbol" in item.seen


def test_no_torch_is_a_warning_because_inspecting_works_without() -> None:
    _, [item] = _doctor.framework(unloadable, None)
    assert item.state == "warning"


def test_a_missing_package_is_a_problem() -> None:
    items = list(_doctor.packages(lambda name: None if name == "rich" else "1.0"))
    assert [item.name for item in items if broken(item)] == ["rich"]


def test_an_old_python_is_a_problem() -> None:
    assert broken(next(iter(_doctor.python((3, 9, 2)))))


def test_more_threads_than_processors_are_a_warning() -> None:
    [item] = _doctor.threads(fake_torch(threads=10_000))
    assert item.state == "warning"


def test_a_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    assert broken(next(iter(_disk.disk(tmp_path / "nowhere"))))


def test_a_full_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = types.SimpleNamespace(free=1 << 20)
    monkeypatch.setattr(_disk.shutil, "disk_usage", lambda path: usage)
    assert broken(next(iter(_disk.disk(tmp_path))))


def test_a_clock_before_this_software_is_a_problem() -> None:
    assert broken(next(iter(_disk.clock(lambda: 86_400.0))))


def test_a_problem_ends_doctor_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_core, "fp_environment", lambda: {"rounding": (False, "upwards")})
    assert _cli.run(["doctor", "--directory", str(tmp_path)]) == 3
    assert "upwards" in capsys.readouterr().out


def test_a_processor_is_described_by_what_matters(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: Example 9000\nflags\t\t: fpu avx2 fma sha_ni\n")
    [item] = _doctor.processor(cpuinfo)
    assert item.seen == "Example 9000 (avx2, fma, sha_ni)"
