# SPDX-License-Identifier: Apache-2.0
"""potl's randomness under torch: a function of the key, and of nothing else."""

import hashlib
import os
import random
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from processor import torch_instruction_sets
from torch import nn
from torch.utils.checkpoint import checkpoint

from potl import _core
from potl._base._errors import UsageError
from potl._task import _random, _truncated

KEY = _core.derive_key(7, "test")


def seeded(make, key=KEY):
    with _random.scope():
        _random.seed_all(key)
        return make()


DRAWS = {
    "normal_": lambda: torch.randn(100),
    "uniform_": lambda: torch.rand(100),
    "exponential_": lambda: torch.empty(100).exponential_(2.0),
    "bernoulli_": lambda: torch.empty(100).bernoulli_(0.3),
    "bernoulli of a tensor": lambda: torch.bernoulli(torch.full((100,), 0.3)),
    "normal of tensors": lambda: torch.normal(torch.zeros(100), torch.ones(100)),
    "randperm": lambda: torch.randperm(100),
    "randint": lambda: torch.randint(0, 1000, (100,)),
    "multinomial": lambda: torch.multinomial(torch.rand(100), 10),
    "dropout": lambda: F.dropout(torch.ones(100), 0.5),
    "dropout2d": lambda: F.dropout2d(torch.ones(2, 50, 2, 2), 0.5),
    "alpha_dropout": lambda: F.alpha_dropout(torch.ones(100), 0.5, training=True),
    "rrelu": lambda: F.rrelu(-torch.ones(100), training=True),
    "gumbel_softmax": lambda: F.gumbel_softmax(torch.zeros(100)),
    "attention dropout": lambda: F.scaled_dot_product_attention(
        torch.ones(1, 4, 8), torch.ones(1, 4, 8), torch.ones(1, 4, 8), dropout_p=0.5
    ),
    "half": lambda: torch.randn(100, dtype=torch.float16),
    "complex": lambda: torch.randn(100, dtype=torch.complex64),
    "int bernoulli": lambda: torch.empty(100, dtype=torch.int32).bernoulli_(0.5),
    "cauchy_": lambda: torch.empty(100).cauchy_(),
    "geometric_": lambda: torch.empty(100).geometric_(0.2),
    "log_normal_": lambda: torch.empty(100).log_normal_(),
    "gamma": lambda: torch._standard_gamma(torch.full((100,), 0.5)),
    "Dirichlet": lambda: torch._sample_dirichlet(torch.full((20, 5), 0.5)),
    "poisson": lambda: torch.poisson(torch.full((100,), 20.0)),
    "binomial": lambda: torch.binomial(torch.full((100,), 90.0), torch.full((100,), 0.5)),
    "multinomial with replacement": lambda: torch.multinomial(torch.rand(100), 300, True),
    "random": lambda: torch.tensor([random.random() for _ in range(10)]),
    "numpy": lambda: torch.from_numpy(np.random.rand(10)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_equal_keys_draw_equal_values_and_other_keys_do_not(name):
    assert torch.equal(seeded(DRAWS[name]), seeded(DRAWS[name]))
    assert not torch.equal(seeded(DRAWS[name]), seeded(DRAWS[name], _core.derive_key(8, "test")))


@pytest.mark.parametrize(
    ("make", "mean", "deviation"),
    [
        (lambda: torch.empty(200_000).normal_(3, 2), 3, 2),
        (lambda: torch.empty(200_000).uniform_(-1, 3), 1, 4 / 12**0.5),
        (lambda: torch.empty(200_000).exponential_(2), 0.5, 0.5),
        (lambda: torch.empty(200_000).bernoulli_(0.3), 0.3, 0.21**0.5),
        (lambda: torch.empty(200_000).bernoulli_(torch.full((200_000,), 0.3)), 0.3, 0.21**0.5),
        (lambda: torch.empty(200_000).geometric_(0.25), 4, 12**0.5),
        (lambda: torch.normal(torch.full((200_000,), 3.0), 2.0), 3, 2),
        (lambda: torch.empty(200_000).log_normal_(0, 0.5), 1.1331, 0.6039),
        (lambda: nn.init.trunc_normal_(torch.empty(200_000)), 0, 0.8796),
        (lambda: torch._standard_gamma(torch.full((200_000,), 0.25)), 0.25, 0.5),
        (lambda: torch._sample_dirichlet(torch.tensor([[1.0, 3.0]] * 200_000))[:, 0], 0.25, 0.1936),
        (lambda: torch.poisson(torch.full((200_000,), 25.0)), 25, 5),
        (lambda: torch.binomial(torch.full((200_000,), 75.0), torch.tensor(0.25)), 18.75, 3.75),
        (lambda: torch.multinomial(torch.tensor([3.0, 0.0, 1.0]), 200_000, True), 0.5, 0.75**0.5),
    ],
)
def test_moments_are_those_of_the_distribution(make, mean, deviation):
    # Fixed key, so this never alarms by chance; six standard errors would be a 2e-9 event for a
    # fresh one.
    values = seeded(make).double()
    error = deviation / values.numel() ** 0.5
    assert abs(float(values.mean()) - mean) < 6 * error
    assert abs(float(values.std()) - deviation) < 0.05 * deviation


TRUNCATED = {
    "": "8a1914bc0b74ee",
    "narrow": "f7e2fa7b168d7e",
    "off the middle": "cf9c4f9df61cf0",
    "bfloat16": "f9e053e317c5a5",
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_truncated_normals_have_the_bits_of_torch_2_13_under_every_torch(monkeypatch, name):
    ends = {"narrow": (0.0, 0.02, -0.04, 0.04), "off the middle": (0.1,)}.get(name, ())
    dtype = torch.bfloat16 if name == "bfloat16" else torch.float32

    def stock(*_, **__):
        pytest.fail("torch's own was called")

    def make():
        values = torch.empty(16, 12, dtype=dtype)
        assert nn.init.trunc_normal_(values, *ends) is values
        return values.float()

    monkeypatch.setattr(nn.init, "_no_grad_trunc_normal_", stock)
    # Here, because a session that an earlier test left to the collector had it put already.
    put_back = _truncated.put(_random._inside)
    try:
        values = seeded(make, _core.derive_key(7, "init"))
    finally:
        put_back()
    assert hashlib.sha256(values.numpy().tobytes()).hexdigest().startswith(TRUNCATED[name])
    assert nn.init._no_grad_trunc_normal_ is stock


def test_a_non_contiguous_target_gets_the_values_of_its_logical_order():
    def strided():
        out = torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        return out.normal_()

    assert torch.equal(
        seeded(strided).contiguous(), seeded(lambda: torch.zeros(2, 3, 4, 5).normal_())
    )


def test_a_parameter_can_be_initialised():
    layer = seeded(lambda: nn.Linear(3, 4))
    assert layer.weight.requires_grad and float(layer.weight.detach().std()) > 0


def test_an_empty_target_draws_nothing():
    with _random.scope():
        before = _random.draws()
        torch.rand(0)
        assert _random.draws() == before
        torch.rand(1)
        assert _random.draws() == before + 1


def test_a_generator_of_the_caller_is_used_and_advanced():
    with _random.scope():
        one, two = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
        first = torch.randn(5, generator=one)
        assert torch.equal(first, torch.randn(5, generator=two))
        assert not torch.equal(first, torch.randn(5, generator=one))


def test_wrong_parameters_are_refused_as_torch_refuses_them():
    with _random.scope():
        for call in (
            lambda: torch.empty(2).normal_(0, -1),
            lambda: torch.empty(2).uniform_(1, 0),
            lambda: torch.empty(2).exponential_(0),
            lambda: torch.empty(2).bernoulli_(1.5),
            lambda: torch.empty(2).geometric_(1.0),
            lambda: torch.bernoulli(torch.tensor([2.0])),
        ):
            with pytest.raises(RuntimeError):
                call()


def test_checkpointed_activations_repeat_their_dropout():
    def run(use):
        with _random.scope():
            _random.seed_all(KEY)
            x = torch.ones(64, requires_grad=True)
            y = (
                checkpoint(lambda v: F.dropout(v * v), x, use_reentrant=False)
                if use
                else F.dropout(x * x)
            )
            F.dropout(y).sum().backward()
            return x.grad

    assert torch.equal(run(True), run(False))


def test_the_users_generators_are_restored():
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = torch.randn(3), random.random(), np.random.rand()
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    seeded(lambda: (torch.randn(9), random.random(), np.random.rand()))
    got = torch.randn(3), random.random(), np.random.rand()
    assert torch.equal(expected[0], got[0]) and expected[1:] == got[1:]


def test_the_users_generators_are_restored_after_an_exception():
    torch.manual_seed(1)
    with pytest.raises(ZeroDivisionError):
        seeded(lambda: 1 / 0)
    after = torch.randn(3)
    torch.manual_seed(1)
    assert torch.equal(after, torch.randn(3))


def test_suspended_code_runs_with_the_users_generators_and_disturbs_nothing():
    torch.manual_seed(1)
    expected = torch.randn(3), torch.randn(3)
    torch.manual_seed(1)
    with _random.scope():
        _random.seed_all(KEY)
        with _random.suspended():
            first = torch.randn(3)
        _random.seed_all(KEY)
        drawn = torch.randn(4)
    assert torch.equal(first, expected[0]) and torch.equal(torch.randn(3), expected[1])
    assert torch.equal(drawn, seeded(lambda: torch.randn(4)))


def test_a_normal_number_that_numpy_keeps_for_the_user_survives():
    np.random.seed(1)
    expected = [np.random.normal() for _ in range(6)]
    np.random.seed(1)
    got = [np.random.normal()]
    with _random.scope():
        _random.seed_all(KEY)
        np.random.normal()
        with _random.suspended():
            got.append(np.random.normal())  # the kept one: no bits move
        with _random.suspended():
            got.append(np.random.normal())
        np.random.normal()
        with _random.suspended():
            pass
        with _random.suspended():
            got += [np.random.normal(), np.random.normal()]
    assert [*got, np.random.normal()] == expected


def test_the_user_may_exchange_numpys_bit_generator():
    before = np.random.get_bit_generator()
    try:
        with _random.scope():
            with _random.suspended():
                np.random.set_bit_generator(np.random.PCG64(5))
                first = np.random.rand()
            seeded(np.random.rand)
            with _random.suspended():
                second = np.random.rand()
        rest = np.random.normal(), np.random.normal()
        np.random.set_bit_generator(np.random.PCG64(5))
        assert (first, second) == (np.random.rand(), np.random.rand())
        assert rest == (np.random.normal(), np.random.normal())
    finally:
        np.random.set_bit_generator(before)


def test_the_users_code_may_open_a_scope_of_its_own():
    with _random.scope():
        _random.seed_all(KEY)
        with _random.suspended():
            np.random.seed(3)
            seeded(lambda: np.random.rand(7))
            got = np.random.rand()
        _random.seed_all(KEY)
        drawn = np.random.rand()
    np.random.seed(3)
    assert got == np.random.rand()
    assert drawn == seeded(np.random.rand)


def test_no_state_of_numpy_is_copied_for_code_that_does_not_draw(monkeypatch):
    np.random.seed(1)
    with _random.scope():
        copies = []
        for name in ("get_state", "set_state"):
            stock = getattr(np.random, name)
            monkeypatch.setattr(
                np.random, name, lambda *a, stock=stock, **k: copies.append(1) or stock(*a, **k)
            )
        np.random.get_state()
        assert len(copies) == 1  # the counter counts
        for _ in range(10):
            _random.seed_all(KEY)
            np.random.normal()
            with _random.suspended():
                random.random(), torch.rand(1)
    assert len(copies) == 1


def test_other_threads_keep_torchs_own_operators():
    torch.manual_seed(1)
    expected = torch.randn(4, generator=torch.Generator().manual_seed(5))
    got = []
    with _random.scope():
        thread = threading.Thread(
            target=lambda: got.append(torch.randn(4, generator=torch.Generator().manual_seed(5)))
        )
        thread.start()
        thread.join()
    assert torch.equal(got[0], expected)


def test_two_threads_cannot_be_in_a_scope_at_once():
    errors = []

    def enter():
        try:
            with _random.scope():
                pass
        except UsageError as error:
            errors.append(error)

    with _random.scope():
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(errors) == 1 and "processes" in errors[0].remedy


SCRIPT = """
import hashlib, torch
from torch import nn
from potl import _core
from potl._task import _random
with _random.scope():
    _random.seed_all(_core.derive_key(7, "init"))
    layers = [nn.Linear(50, 30), nn.Conv2d(3, 8, 3), nn.Embedding(20, 9), nn.LSTM(8, 8)]
    layers.append(nn.MultiheadAttention(8, 2))
    tensors = [p.detach() for m in layers for p in m.parameters()]
    tensors.append(nn.init.trunc_normal_(torch.empty(999), std=0.02))
    tensors.append(nn.init.trunc_normal_(torch.empty(999), 0, 1, 2, 3))
    tensors.append(nn.init.kaiming_normal_(torch.empty(30, 20)))
    tensors.append(torch.randperm(50).float())
    tensors.append(torch.nn.functional.dropout(torch.ones(999), 0.3))
    tensors.append((torch.rand(99) * 2 - 1).erfinv_())
    tensors.append(torch.rand(99, dtype=torch.bfloat16).float())
    tensors += [torch.empty(99).exponential_(), torch.empty(99).cauchy_()]
    shapes = torch.arange(1, 100) / 4
    tensors += [torch._standard_gamma(shapes), torch._sample_dirichlet(shapes)]
    tensors += [torch.poisson(shapes), torch.multinomial(shapes, 99, replacement=True).float()]
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest()
print(torch.backends.cpu.get_cpu_capability(), digest)
"""


def test_initial_weights_have_the_same_bits_under_every_instruction_set():
    seen = {}
    for capability in torch_instruction_sets():
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "1"}
        out = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        name, digest = out.stdout.split()
        seen[name] = digest
    if len(seen) < 2:
        pytest.skip(f"this processor has one instruction set for torch: {list(seen)}")
    assert len(set(seen.values())) == 1, seen
