# SPDX-License-Identifier: Apache-2.0
"""Optimizers in a `deterministic` block: numbers that Python raises to powers are potl's.

Run as a program it prints a digest of what each optimizer leaves, and one of plain powers.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
from places import HELPERS
from torch import nn, optim

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")

from potl._arithmetic._exact_number import Number
from potl._arithmetic._library import module

FORMS = ("plain", "foreach", "fused")
OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": lambda p, **o: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **o),
    "adam": lambda p, **o: optim.Adam(p, lr=0.01, weight_decay=0.01, **o),
    "amsgrad": lambda p, **o: optim.Adam(p, lr=0.01, amsgrad=True, **o),
    "adamw": lambda p, **o: optim.AdamW(p, lr=0.01, **o),
    "nadam": lambda p, **o: optim.NAdam(p, lr=0.01, **o),
    "radam": lambda p, **o: optim.RAdam(p, lr=0.01, **o),
    "adamax": lambda p, **o: optim.Adamax(p, lr=0.01, **o),
    "asgd": lambda p, **o: optim.ASGD(p, lr=0.01, t0=5, **o),
    "adagrad": lambda p, **o: optim.Adagrad(p, lr=0.01, lr_decay=0.01, **o),
    "rmsprop": lambda p, **o: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True, **o),
    "rprop": lambda p, **o: optim.Rprop(p, lr=0.01, **o),
    "adadelta": lambda p, **o: optim.Adadelta(p, lr=0.1, **o),
    "adafactor": lambda p, **o: optim.Adafactor(p, lr=0.1, weight_decay=0.01, **o),
    "muon": lambda p, foreach: optim.Muon(p[:1], lr=0.1),
}
HAVE_FOREACH = [name for name in OPTIMIZERS if name != "muon"]
HAVE_FUSED = ("sgd", "adam", "amsgrad", "adamw", "adagrad")


def weights() -> list[nn.Parameter]:
    start = torch.arange(35, dtype=torch.float32).view(5, 7) / 16 - 1
    return [nn.Parameter(start.clone()), nn.Parameter(start[0].clone())]


def trained(name: str, form: str, steps: int = 30) -> list[torch.Tensor]:
    w, b = weights()
    options = {"plain": {"foreach": False}, "unasked": {}}.get(form, {form: True})
    optimizer = OPTIMIZERS[name]([w, b], **options)
    x = torch.arange(20, dtype=torch.float32).view(4, 5) / 8 - 1
    for step in range(steps):
        optimizer.zero_grad()
        with potl.deterministic():
            ((x @ w + b - step / 8) * (x @ w)).sum().backward()
            optimizer.step()
    state = [v for row in optimizer.state.values() for v in row.values()]
    return [w.detach(), b.detach(), *(v for v in state if isinstance(v, torch.Tensor))]


def digest(tensors: list[torch.Tensor]) -> str:
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.numpy().tobytes())
    return sha.hexdigest()[:16]


def forms_of(name: str) -> list[str]:
    return [*FORMS[:1], *FORMS[1:2] * (name in HAVE_FOREACH), *FORMS[2:] * (name in HAVE_FUSED)]


def digests() -> dict[str, str]:
    found = {
        f"{name}/{form}": digest(trained(name, form))
        for name in OPTIMIZERS
        for form in forms_of(name)
    }
    powers = [(1 - k / 1000) ** t for k in range(1, 200) for t in range(2, 200)]
    found["python"] = hashlib.sha256(repr(powers).encode()).hexdigest()[:16]
    numbers = [Number(1 - k / 1000) ** t for k in range(1, 200) for t in range(2, 200)]
    found["potl"] = hashlib.sha256(repr(numbers).encode()).hexdigest()[:16]
    return found


def in_subprocess(**environment: str) -> dict[str, str]:
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [programs.python(**environment), __file__],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment, "PYTHONPATH": str(HELPERS)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split() for line in done.stdout.splitlines())


def test_another_libm_changes_pythons_powers_and_no_optimizer() -> None:
    here = digests()
    there = in_subprocess(
        GLIBC_TUNABLES="glibc.cpu.hwcaps=-FMA,-AVX2", ATEN_CPU_CAPABILITY="default"
    )
    powers = here.pop("python"), there.pop("python")
    assert here == there
    if "fma" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("a processor without FMA has one libm")
    # The control: Python's own powers are not the same.
    assert powers[0] != powers[1]


# torch itself writes the foreach forms of the others as other operations.
@pytest.mark.parametrize(
    "name",
    ["sgd", "adam", "amsgrad", "adamw", "adamax", "rmsprop", "adadelta", "rprop", "adafactor"],
)
def test_all_forms_of_an_optimizer_give_the_same_bits(name: str) -> None:
    one = [digest(trained(name, form)[:2]) for form in forms_of(name)]
    assert len(set(one)) == 1, dict(zip(forms_of(name), one, strict=True))


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is a device on which torch takes foreach forms unasked."""
    for name in ("optimizer", "swa_utils"):
        chooser = sys.modules[f"torch.optim.{name}"]
        monkeypatch.setattr(chooser, "_get_foreach_kernels_supported_devices", lambda: ["cpu"])


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("name", HAVE_FOREACH)
def test_the_device_does_not_choose_the_form_of_an_optimizer(name: str) -> None:
    assert digest(trained(name, "unasked")[:2]) == digest(trained(name, "plain")[:2])


def averaged() -> torch.Tensor:
    model = nn.Linear(1, 50, bias=False)
    average = optim.swa_utils.AveragedModel(model)
    with torch.no_grad(), potl.deterministic():
        for step in range(5):
            model.weight.copy_(torch.arange(50.0)[:, None].add(step).sin())
            average.update_parameters(model)
    return next(average.parameters()).detach()


def test_the_device_does_not_choose_how_weights_are_averaged(
    request: pytest.FixtureRequest,
) -> None:
    plain = averaged()
    request.getfixturevalue("_as_on_a_gpu")
    assert torch.equal(averaged(), plain)


# Muon makes a whole step of what rounding to bfloat16 leaves where there is no gradient.
@pytest.mark.parametrize("name", sorted({*OPTIMIZERS} - {"muon"}))
def test_an_optimizer_does_what_torchs_own_does(name: str) -> None:
    got = trained(name, "plain")
    w, b = weights()
    optimizer = OPTIMIZERS[name]([w, b], foreach=False)
    x = torch.arange(20, dtype=torch.float32).view(4, 5) / 8 - 1
    for step in range(30):
        optimizer.zero_grad()
        ((x @ w + b - step / 8) * (x @ w)).sum().backward()
        optimizer.step()
    torch.testing.assert_close(got[0], w.detach(), rtol=1e-3, atol=1e-4)


def test_the_bias_corrections_of_adam_are_potls() -> None:
    power = module().exact_pow
    for form in ("plain", "foreach", "fused"):
        w = nn.Parameter(torch.ones(1))
        options: dict[str, Any] = {} if form == "plain" else {form: True}
        optimizer = optim.Adam([w], lr=0.5, **({"foreach": False} | options))
        m, v, want = 0.0, 0.0, torch.ones(1)
        for step in range(1, 50):
            w.grad = torch.tensor([1.0 / step])
            with potl.deterministic():
                optimizer.step()
                g = w.grad
                m = torch.lerp(torch.as_tensor(m).view(1).float(), g, 1 - 0.9)
                v = (torch.as_tensor(v).view(1).float() * 0.999).addcmul(g, g, value=1 - 0.999)
                c1 = 1 - power(0.9, float(step))
                c2 = power(1 - power(0.999, float(step)), 0.5)
                denominator = (v.sqrt() / c2).add(1e-8)
                want = want.addcdiv(m, denominator, value=-(0.5 / c1))
            assert torch.equal(w.detach(), want), (form, step)


def test_the_decay_of_adafactor_is_potls() -> None:
    power = module().exact_pow
    for foreach in (False, True):
        w = nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer = optim.Adafactor([w], beta2_decay=-0.8, foreach=foreach)
        want = torch.zeros_like(w)
        for step in range(1, 50):
            w.grad = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) / step
            with potl.deterministic():
                optimizer.step()
                want = torch.lerp(want, w.grad.square(), power(float(step), -0.8))
            assert torch.equal(optimizer.state[w]["variance"], want), (foreach, step)


def test_a_learning_rate_may_be_a_tensor() -> None:
    for form in ("plain", "fused"):
        w = nn.Parameter(torch.ones(3))
        options: dict[str, Any] = {"foreach": False} if form == "plain" else {form: True}
        optimizer = optim.AdamW([w], lr=torch.tensor(0.125), **options)
        w.grad = torch.tensor([1.0, -2.0, 0.5])
        with potl.deterministic():
            optimizer.step()
        assert torch.isfinite(w).all()
        assert not torch.equal(w.detach(), torch.ones(3))


# ---------------------------------------------------------------------- numbers


def test_numbers_stay_numbers_through_arithmetic() -> None:
    x = Number(3.0)
    for y in (x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 2 / x, -x, +x, x**0.5, 0.5**x):
        assert type(y) is Number
    assert (x + 1, 1 - x, x / 2, -x) == (4.0, -2.0, 1.5, -3.0)
    assert (2 * torch.ones(2) * x).tolist() == [6.0, 6.0]


def test_powers_are_within_an_ulp_of_pythons() -> None:
    import math

    for base in (0.9, 0.96, 0.999, 0.5, 1.5):
        for exponent in (1.0, 2.0, 7.0, 0.5, 100.0, 1234.0, -3.0):
            got, want = float(Number(base) ** exponent), base**exponent
            assert abs(got - want) <= math.ulp(want), (base, exponent)
            assert float(base ** Number(exponent)) == got


if __name__ == "__main__":
    for key, value in digests().items():
        print(key, value)
