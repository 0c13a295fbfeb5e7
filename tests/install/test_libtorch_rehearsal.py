# SPDX-License-Identifier: Apache-2.0
"""C++ trainers in every arithmetic: honest ones are accepted, with any number of threads, and each
cheat is rejected for what it did. Python computes the same bits."""

import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("potl._torch", reason="potl was built without torch")

from libtorch_played import Played  # noqa: E402

import potl  # noqa: E402
from potl import _core  # noqa: E402

EXACT = ["ord32", "cr32", "log64", "xint24", "xint16"]
STEPS = 40

# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("mode", EXACT)
def test_an_honest_run_is_accepted_bit_for_bit_by_a_verifier_with_other_threads(
    play: Callable[..., Played], mode: str
) -> None:
    played = play(arithmetic=mode, threads=3)
    assert (played.verdict, played.rules()) == ("accepted", set())
    assert played.job.arithmetic == mode
    segments = [f for f in played.report["findings"] if "bit for bit" in f["reason"]]
    assert len(segments) >= STEPS // 2


def test_kernels_of_another_arithmetic_than_agreed_are_rejected(
    play: Callable[..., Played],
) -> None:
    played = play(arithmetic="ord32", cheat="stock")
    assert played.verdict == "rejected"
    assert "replay.parameters" in played.rules()


def test_without_a_choice_a_job_is_exact_where_the_task_brings_exact_arithmetic(
    play: Callable[..., Played],
) -> None:
    played = play()
    assert (played.verdict, played.job.arithmetic, played.said) == ("accepted", "ord32", "")


def test_adam_is_exact_too(play: Callable[..., Played]) -> None:
    played = play(optimizer="adam", arithmetic="ord32", threads=2)
    assert (played.verdict, played.rules()) == ("accepted", set())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("mode", ["ord32", "log64"])
def test_python_trains_to_the_same_bits(
    play: Callable[..., Played], mode: str, optimizer: str
) -> None:
    played = play(arithmetic=mode, optimizer=optimizer, plain=1)
    assert played.verdict == "accepted"
    evidence = played.evidence()
    net = in_python(played.job, evidence.load_state(0).tree(), mode, optimizer)
    recorded = evidence.load_state(STEPS).tree()["model"]
    for name, value in net.named_parameters():
        assert bytes(recorded["parameters"][name].data) == value.detach().numpy().tobytes(), name
    for name, value in net.named_buffers():
        assert bytes(recorded["buffers"][name].data) == value.numpy().tobytes(), name


def in_python(job: _core.Job, start: dict[str, Any], mode: str, optimizer: str) -> Any:
    """The training of rehearsal.cpp."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(100, 40)
            self.norm = nn.BatchNorm1d(40)
            self.last = nn.Linear(40, 5)

        def forward(self, x: Any) -> Any:
            return self.last(nn.functional.gelu(self.norm(self.first(x))))

    net = Net()
    with torch.no_grad():
        for name, value in net.named_parameters():
            saved = start["model"]["parameters"][name]
            value.copy_(torch.frombuffer(bytearray(saved.data), dtype=torch.float32).view_as(value))
    made = (
        torch.optim.Adam(net.parameters(), lr=0.01, amsgrad=True, weight_decay=0.01)
        if optimizer == "adam"
        else torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    )
    count = 320 * 100
    images = torch.arange(count).mul(7919).remainder(65537).float().div(65537.0).sub(0.5)
    images, labels = images.reshape(320, 100), torch.arange(320).remainder(5)
    for step in range(1, STEPS + 1):
        ids = torch.tensor(job.sample_ids(step))
        with potl.deterministic(mode):
            made.zero_grad()
            for half in ids.chunk(2):
                losses = nn.functional.cross_entropy(
                    net(images[half]), labels[half], reduction="none"
                )
                (losses.mean() * 0.5).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            made.step()
    return net


# ---------------------------------------------------------------- states derived on demand


def test_few_states_are_stored_and_the_verifier_derives_the_others(
    play: Callable[..., Played],
) -> None:
    played = play(arithmetic="ord32", store=10, threads=2)
    assert (played.verdict, played.rules()) == ("accepted", set())
    assert (played.job.store_every, played.stored) == (10, [0, 10, 20, 30, 40])


def test_all_states_are_stored_where_they_are_small(play: Callable[..., Played]) -> None:
    played = play()
    assert (played.job.fields().get("store_every"), len(played.stored)) == (None, STEPS // 2 + 1)


def test_a_step_skimped_between_stored_states_is_rejected(play: Callable[..., Played]) -> None:
    played = play(arithmetic="ord32", store=10, cheat="between")
    assert played.verdict == "rejected"
    assert "replay.parameters" in played.rules()
    assert any(
        "first step that ends in other bits is 3" in f["reason"] for f in played.report["findings"]
    )


# ---------------------------------------------------------------- the first operator


def test_a_trace_of_the_trainers_names_the_first_operator(play: Callable[..., Played]) -> None:
    played = play(arithmetic="ord32", cheat="stock", trace=1)
    reasons = [f["reason"] for f in played.report["findings"]]
    # Which one depends on what the machine's own kernels round otherwise.
    named = re.compile(r"is 1, the first operator in it: operator \d+ of \d+, aten\.\w+\.")
    assert any(named.search(one) for one in reasons), reasons


def test_a_trace_that_does_not_show_the_cheat_says_so(play: Callable[..., Played]) -> None:
    played = play(arithmetic="ord32", cheat="between", trace=3)
    assert played.verdict == "rejected"
    reasons = [f["reason"] for f in played.report["findings"]]
    assert any("none: the prover's own trace agrees with the verifier" in one for one in reasons)


# ---------------------------------------------------------------- noise in stock arithmetic


def test_an_honest_run_in_stock_arithmetic_is_accepted(play: Callable[..., Played]) -> None:
    played = play(arithmetic="stock", threads=2)
    assert (played.verdict, played.rules()) == ("accepted", set())
    assert played.job.arithmetic == "stock"


def test_repeats_in_other_arithmetics_reject(
    play: Callable[..., Played],
) -> None:
    played = play(arithmetic="stock", cheat="lazy")
    assert played.verdict == "rejected"
    assert {"replay.update_relative", "replay.optimizer"} <= played.rules(check="replay")


def test_without_potls_arithmetics_rough_sums_reject(play: Callable[..., Played]) -> None:
    played = play(arithmetic="stock", exact=0, cheat="lazy")
    assert played.verdict == "rejected"
    assert {"replay.update_relative", "replay.optimizer"} <= played.rules(check="replay")


# ---------------------------------------------------------------- rounding logs


def test_every_step_in_log64_binds_a_log_that_python_reads(play: Callable[..., Played]) -> None:
    played = play(arithmetic="log64", threads=2)
    assert played.verdict == "accepted"
    assert {one.result for one in played.evidence().findings()} == {"pass"}
    numbers = [f["details"] for f in played.report["findings"] if f["check"] == "replay"]
    rounded = [int(one["rounding.values"]) for one in numbers if "rounding.values" in (one or ())]
    assert len(rounded) == STEPS // 2 and min(rounded) > 10_000


@pytest.mark.parametrize(
    ("cheat", "rule"), [("flood", "replay.rounding"), ("unlogged", "transcript.rounding")]
)
def test_a_dishonest_rounding_log_is_rejected(
    play: Callable[..., Played], cheat: str, rule: str
) -> None:
    played = play(arithmetic="log64", cheat=cheat, threads=2)
    assert (played.verdict, played.rules()) == ("rejected", {rule})


# ---------------------------------------------------------------- resumes and own loops


@pytest.mark.parametrize("mode", ["ord32", "log64", "stock"])
def test_an_interrupted_recording_goes_on_and_is_accepted(
    play: Callable[..., Played], mode: str
) -> None:
    played = play(arithmetic=mode, interrupt=13, threads=2)
    assert (played.verdict, played.rules()) == ("accepted", set())
    resumes = _core.inspect_run(str(played.path))["resumes"]
    assert resumes == [{"from_step": 12, "last_step": 13}]


def test_a_resume_with_other_weights_is_rejected(play: Callable[..., Played]) -> None:
    played = play(arithmetic="ord32", interrupt=13, cheat="swap")
    assert played.verdict == "rejected"
    assert "replay.parameters" in played.rules()
    assert any(
        "first step that ends in other bits is 13" in f["reason"] for f in played.report["findings"]
    )
