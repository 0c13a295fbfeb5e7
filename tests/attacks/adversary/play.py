# SPDX-License-Identifier: Apache-2.0
"""Plays lies in a process of bounded memory and time, and says which verdicts must not be.

python -m adversary.play 0 300        lies 0 to 299, a line of JSON each
python -m adversary.play --again 17   one, minimised
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pure_format as pure
import torch

from potl import PEV, Policy, PotlError, Replay, Telemetry, _core, verify
from potl._job._session import Session

from . import oracle, worlds
from .forge import Draft
from .generate import Lie, draft_of, lie
from .worlds import World

_NONCES = 60
_HONEST_DRAWS = 8
# A crafted run may cost twice what honest ones do; small numbers vary.
WORK, WORK_SLACK = 2.0, 12
MEMORY_SLACK = 64 << 20
SECONDS_SLACK = 2.0
LIMIT = 1 << 30


@dataclasses.dataclass(frozen=True)
class Outcome:
    verdict: str
    sentence: str
    steps: int
    seconds: float
    memory: int
    findings: tuple[str, ...]


class _Count:
    """Steps that verifications run."""

    def __init__(self) -> None:
        self.steps = 0
        for name in ("run_step", "loss_at", "_subset_loss"):
            setattr(Session, name, self._counted(getattr(Session, name)))

    def _counted(self, method: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.steps += 1
            return method(*args, **more)

        return call


_count = _Count()


def play(one: Lie) -> Outcome:
    """Forges, verifies, and asks the oracle."""
    world = worlds.world(one.world)
    draft = draft_of(one)
    run = world.directory / "lie"
    shutil.rmtree(run, ignore_errors=True)
    note, model = draft.write(run)
    delivered = _read_model(model)
    nonce = _nonce(world, run, note, draft, True) if one.hidden else None
    hidden = nonce is not None
    nonce = nonce or _nonce(world, run, note, draft, False)
    outcome = _verify(world, run, note, model, nonce, hidden)
    found = list(outcome.findings)
    if outcome.verdict == "accepted":
        found += oracle.false_claims(draft, hidden, delivered)
    found += _cost(world, outcome)
    if not one.edits and outcome.verdict != "accepted":
        found.append(f"accused: an honest run is {outcome.verdict}")
    return dataclasses.replace(outcome, findings=tuple(found))


def _verify(
    world: World, run: Path, note: str, model: Path, nonce: bytes | None, hidden: bool
) -> Outcome:
    samples = world.segments // 2 if hidden else world.segments
    before, _ = _memory(reset=True)
    _count.steps, began = 0, time.process_time()
    verdict, sentence, found = "error", "", []
    try:
        report = verify(
            str(run),
            job=world.job,
            commitment=note,
            task=world.build,
            model=str(model),
            checks=[Telemetry(), PEV(fraction=0.25), Replay(samples=samples)],
            policy=Policy(probability=0) if hidden else None,
            nonce=nonce,
            ledger=None,
            progress=False,
        )
        verdict, sentence = report.verdict, report.sentence
    except PotlError as error:  # unreadable, and says so
        sentence = f"{type(error).__name__}: {error}"
    except BaseException as error:
        sentence = f"{type(error).__name__}: {error}"
        found = [f"exception: {sentence[:300]}"]
    seconds = time.process_time() - began
    peak = _memory()[1]
    return Outcome(verdict, sentence, _count.steps, seconds, peak - before, tuple(found))


def _nonce(world: World, run: Path, note: str, draft: Draft, hidden: bool) -> bytes | None:
    """The draw that replays least of what is false, as the adversary would wish for; None when a
    draw that should miss all of it cannot.
    """
    false = draft.false_segments()
    samples = world.segments // 2 if hidden else world.segments
    best, missed = None, -1
    try:
        evidence = _core.Evidence.open(str(run), job=world.job.core, commitment=note)
        for number in range(_NONCES):
            nonce = hashlib.sha256(number.to_bytes(8, "little")).digest()
            options = Replay(samples=samples).options()
            plan = _core.plan_check("replay", evidence, options, nonce)
            seen = [(one.from_step, one.from_step + one.steps) for one in plan]
            count = sum(not any(x < b and a < y for x, y in seen) for a, b in false)
            if count > missed:
                best, missed = nonce, count
    except Exception:
        best = None
    if hidden and missed < len(false):
        return None
    return best or bytes([1]) * 32


def _cost(world: World, outcome: Outcome) -> list[str]:
    steps, seconds = honest_cost(world, 1)
    if (
        outcome.steps > WORK * steps + WORK_SLACK
        or outcome.seconds > WORK * seconds + SECONDS_SLACK
    ):
        steps, seconds = honest_cost(world)  # a dearer draw may explain it
    found = []
    if outcome.steps > WORK * steps + WORK_SLACK:
        found.append(f"work: {outcome.steps} steps, an honest run takes {steps}")
    if outcome.seconds > WORK * seconds + SECONDS_SLACK:
        found.append(f"time: {outcome.seconds:.1f} s, an honest run takes {seconds:.1f}")
    if outcome.memory > MEMORY_SLACK:
        found.append(f"memory: {outcome.memory >> 20} MiB more")
    return found


_costs: dict[tuple[str, int], tuple[int, float]] = {}


def honest_cost(world: World, draws: int = _HONEST_DRAWS) -> tuple[int, float]:
    """Steps and seconds of the dearest honest verification, over some draws: of a run whose bits
    are another machine's.
    """
    if (world.name, draws) not in _costs:
        most = (0, 0.0)
        for recording in (world.honest, world.foreign):
            if recording is None:
                continue
            draft = Draft(world)
            draft.states, draft.results = list(recording.trees), list(recording.results)
            run = world.directory / "honest"
            shutil.rmtree(run, ignore_errors=True)
            note, model = draft.write(run)
            for number in range(1, draws + 1):
                nonce = bytes(31) + bytes([number])
                outcome = _verify(world, run, note, model, nonce, False)
                if outcome.verdict == "rejected" or (world.exact and outcome.verdict != "accepted"):
                    raise AssertionError(f"{world.name}: honest, but {outcome.sentence}")
                most = (max(most[0], outcome.steps), max(most[1], outcome.seconds))
        _costs[world.name, draws] = most
    return _costs[world.name, draws]


def _read_model(path: Path) -> dict[str, Any]:
    from . import nodes

    file = _core.SafetensorsFile.open(str(path))
    out = {}
    for name in file.names():
        dtype, dims, data = file.tensor(name)
        raw = bytes(data)
        out[name] = nodes.Leaf(dtype, "contiguous", tuple(dims), pure.content_root(raw), raw)
    return out


def _memory(reset: bool = False) -> tuple[int, int]:
    """Bytes in memory now, and at most since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(rows[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def limit_memory() -> None:
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    most = (int(rows["VmSize"].split()[0]) << 10) + LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def line(one: Lie, outcome: Outcome) -> str:
    return json.dumps(
        {
            "seed": one.seed,
            "lie": str(one),
            "verdict": outcome.verdict,
            "sentence": outcome.sentence[:400],
            "steps": outcome.steps,
            "seconds": round(outcome.seconds, 3),
            "memory": outcome.memory,
            "findings": outcome.findings,
        }
    )


def main() -> None:
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    for name in (*worlds.NAMES, *worlds.SPARSE):
        honest_cost(worlds.world(name), 1)
    limit_memory()
    if arguments[0] == "--again":
        from .minimise import minimised

        for seed in map(int, arguments[1:]):
            small = minimised(lie(seed))
            print(line(small, play(small)), flush=True)
        return
    first, last = map(int, arguments)
    for seed in range(first, last):
        print(json.dumps({"began": seed}), flush=True)
        one = lie(seed)
        print(line(one, play(one)), flush=True)


if __name__ == "__main__":
    main()
