# SPDX-License-Identifier: Apache-2.0
"""What the adversary hands over: it trains with a real session, strays where its edits say so, and
writes, signs and commits whatever came of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pure_format as pure
import torch

from potl import _core

from . import nodes
from .worlds import EVERY, World

Tree = nodes.Tree
SKIPPED, NOT_FINITE, RESUMED, STORED = 1, 2, 4, 8


@dataclasses.dataclass
class Stray:
    """A departure while training: at `step` the state becomes another, or the step a cheap one."""

    step: int
    change: Callable[[Tree, int], Tree] | None = None
    cheap: str | None = None


@dataclasses.dataclass
class Back:
    """A resume: after `after` training goes on from the state of `start`."""

    after: int
    start: int
    change: Callable[[Tree, int], Tree] | None = None  # of the superseded states
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


class Draft:
    """A run before it is written. `true` says which transitions are those of honest training."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.strays: list[Stray] = []
        self.states: list[Tree] = list(world.honest.trees)
        self.results = list(world.honest.results)
        self.true = [True] * (world.last + 1)
        self.free: set[int] = set()  # steps that whoever knows the net need not compute
        self.stored = set(world.stored)
        self.backs: list[Back] = []
        self.record_edits: list[Callable[[list[Any]], None]] = []
        self.file_edits: list[Callable[[Path], None]] = []
        self.note_edits: list[Callable[[dict[str, Any]], None]] = []
        self.model_edits: list[Callable[[dict[str, Any]], None]] = []
        self.broken: list[str] = []  # edits that could not be trained on
        self.written: list[Any] = []  # the records, once written
        self._by_digest: dict[bytes, Tree] = {}

    # ------------------------------------------------------------------ training

    def train(self) -> None:
        """Honest steps, but where a stray says otherwise; from a state that was changed it goes on
        honestly.
        """
        if not self.strays:
            return
        world, session = self.world, self.world.session
        begin = max(1, min(one.step for one in self.strays))
        try:
            with session.active():
                session.restore(world.honest.kept[begin - 1])
                self._train(begin)
        finally:
            world.renew()

    def _train(self, begin: int) -> None:
        world, session = self.world, self.world.session
        for step in range(begin, world.last + 1):
            here = [one for one in self.strays if one.step == step]
            cheap = next((one.cheap for one in here if one.cheap), None)
            before = self.states[step - 1]
            ids = session.sample_ids(step)
            if cheap == "half":
                ids = ids[: len(ids) // 2]
            elif cheap == "stale":
                ids = session.sample_ids(max(1, step - 1))
            try:
                result = session.run_step(step, world.batch(step, ids))
                tree = nodes.plain(session.capture().tree())
            except Exception as error:
                # What was done to the state cannot be trained on: the honest history goes on.
                self.broken.append(f"step {step}: {type(error).__name__}")
                self.true[step] = False
                return
            wanted = tree
            if cheap == "idle":
                wanted = {**tree, "model": before["model"], "ema": before["ema"]}
            for one in here:
                if one.change is not None:
                    wanted = one.change(wanted, step)
            if wanted is not tree:
                self.true[step] = False
                if not self._go_on_from(wanted, tree):
                    self.true[min(step + 1, world.last)] = False
            self.true[step] &= cheap is None
            self.states[step] = wanted
            self.results[step - 1] = result

    def _go_on_from(self, wanted: Tree, tree: Tree) -> bool:
        session = self.world.session
        try:
            install(session, wanted)
            return True
        except Exception as error:
            self.broken.append(type(error).__name__)
            install(session, tree)
            return False

    def rewrite(self, step: int, change: Callable[[Tree, int], Tree]) -> None:
        """On paper: the state of one step is another than the one that training went on from."""
        self.states[step] = change(self.states[step], step)
        self.true[step] = False
        if step < self.world.last:
            self.true[step + 1] = False

    def false_segments(self) -> list[tuple[int, int]]:
        """Agreed segments with a transition that is not honest training's."""
        last = self.world.last
        cuts = [*range(0, last, EVERY), last]
        return [
            (a, b)
            for a, b in itertools.pairwise(cuts)
            if not all(self.true[a + 1 : b + 1]) or (a == 0 and not self.true[0])
        ]

    # ------------------------------------------------------------------ writing

    def records(self) -> list[Any]:
        world, job = self.world, self.world.job.core
        digests = [nodes.digest(tree) for tree in self.states]
        self._by_digest = dict(zip(digests, self.states, strict=True))
        out: list[Any] = [
            pure.Header(job.id, world.key.public_key.raw, "potl adversary"),
            pure.Initial(job.id, digests[0]),
        ]
        backs = sorted(self.backs, key=lambda one: one.after)
        step, resumed, number = 1, False, 0
        while step <= world.last:
            out.append(self._step(step, digests[step], resumed))
            resumed = False
            if backs and backs[0].after == step:
                back = backs.pop(0)
                number += 1
                if back.change is not None:
                    self._supersede(out, back)
                out.append(self._resume(out, back, number, digests[back.start]))
                step, resumed = back.start, True
            step += 1
        out.append(pure.Close(job.id, world.last, digests[world.last], bytes(32)))
        return out

    def _step(self, step: int, state: bytes, resumed: bool) -> pure.Step:
        result = self.results[step - 1]
        flags = SKIPPED * result.skipped | NOT_FINITE * result.non_finite | RESUMED * resumed
        job = self.world.job.core
        return pure.Step(
            job.id,
            step,
            job.epoch_of(step),
            pure.digest_of_ids(job.sample_ids(step)),
            _bits(result.loss),
            result.random_draws,
            flags | STORED * (step in self.stored),
            1_000_000,
            state,
            tuple(_bits(rate) for rate in result.rates),
        )

    def _supersede(self, out: list[Any], back: Back) -> None:
        """The steps that a resume replaces were other ones than those after it."""
        assert back.change is not None
        for at, record in enumerate(out):
            if isinstance(record, pure.Step) and back.start < record.step <= back.after:
                tree = back.change(self.states[record.step], record.step)
                state = nodes.digest(tree)
                self._by_digest[state] = tree
                out[at] = dataclasses.replace(record, state=state)

    def _resume(self, out: list[Any], back: Back, number: int, state: bytes) -> pure.Resume:
        payloads = [pure.encode_record(record) for record in out]
        resume = pure.Resume(
            self.world.job.core.id,
            back.start,
            back.after,
            number,
            len(out),
            pure.log_root(payloads),
            state,
            bytes(64),
        )
        resume = dataclasses.replace(resume, **back.fields)
        signature = self.world.key.sign(pure.resume_message(resume))
        return dataclasses.replace(resume, signature=signature)

    def write(self, run: Path) -> tuple[str, Path]:
        """The run directory, the commitment's text and the delivered model's file."""
        run.mkdir(parents=True)
        (run / "checkpoints").mkdir()
        (run / "job.json").write_bytes(self.world.job.core.text)
        records = self.records()
        self._write_checkpoints(run, records)
        for edit in self.record_edits:
            edit(records)
        self.written = records
        payloads = [encode(record) for record in records]
        (run / "transcript.log").write_bytes(pure.format_log(payloads))
        note = self._sign(payloads)
        (run / "commitment").write_text(note)
        model = self._deliver(run.parent / f"{run.name}.safetensors")
        for change in self.file_edits:
            change(run)
        return note, model

    def _write_checkpoints(self, run: Path, records: list[Any]) -> None:
        branch = 0
        self._put(run, 0, 0, self.states[0])
        for record in records:
            if isinstance(record, pure.Resume):
                branch += 1
            elif isinstance(record, pure.Step) and record.flags & STORED:
                self._put(run, record.step, branch, self._by_digest.get(record.state))

    @staticmethod
    def _put(run: Path, step: int, branch: int, tree: Tree) -> None:
        if tree is not None:
            suffix = f".b{branch}" if branch else ""
            name = f"step-{step}{suffix}.safetensors"
            (run / "checkpoints" / name).write_bytes(nodes.file_of(tree))

    def _sign(self, payloads: list[bytes]) -> str:
        final = payloads[-1][42:74] if len(payloads[-1]) >= 74 else bytes(32)
        note: dict[str, Any] = {
            "origin": f"potl/v1/{self.world.job.core.id.hex()}",
            "size": len(payloads),
            "root": pure.log_root(payloads),
            "extensions": [f"final {final.hex()}"],
            "key": self.world.key,
        }
        for edit in self.note_edits:
            edit(note)
        key = note.pop("key")
        return _core.CheckpointNote(*note.values()).sign(key)

    def _deliver(self, path: Path) -> Path:
        tensors: dict[str, Any] = {}
        model = self.states[-1].get("model") if isinstance(self.states[-1], dict) else None
        for part in ("parameters", "buffers"):
            held = model.get(part) if isinstance(model, dict) else None
            for name, leaf in held.items() if isinstance(held, dict) else ():
                if isinstance(leaf, nodes.Leaf):
                    tensors[name] = leaf
        for edit in self.model_edits:
            edit(tensors)
        rows = [(str(name), one.dtype, one.dims, one.data) for name, one in tensors.items()]
        _core.write_safetensors(str(path), rows, {})
        return path


def encode(record: Any) -> bytes:
    return record if isinstance(record, bytes) else pure.encode_record(record)


def _bits(number: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


# ---------------------------------------------------------------------- into a live session


@torch.no_grad()
def install(session: Any, tree: Tree) -> None:
    """Makes a session hold a tree, as far as its objects take it: a forger's loader, not the
    verifier's, so that it knows no rules.
    """
    task = session.task
    _install_module(task.model, tree["model"])
    if task.ema is not None:
        _install_module(task.ema, tree["ema"])
    for optimizer, saved in zip(task.optimizers, tree["optimizers"], strict=True):
        owners = [p for group in optimizer.param_groups for p in group["params"]]
        for group, values in zip(optimizer.param_groups, saved["param_groups"], strict=True):
            group.update({key: _live(item) for key, item in values.items() if key != "params"})
        optimizer.state.clear()
        for number, kept in saved["state"].items():
            owner = owners[number] if isinstance(number, int) else number
            optimizer.state[owner] = _live(kept)
    for scheduler, saved in zip(task.schedulers, tree["schedulers"], strict=True):
        scheduler.load_state_dict(_live(saved))
    if task.scaler is not None:
        task.scaler.load_state_dict(_live(tree["scaler"]))
    session._state.step = tree["counters"]["step"]
    session._state.epoch_loss = float(tree["counters"].get("epoch_loss", 0.0))


def _install_module(module: torch.nn.Module, tree: Tree) -> None:
    for name, parameter in module.named_parameters():
        parameter.copy_(_live(tree["parameters"][name]))
    for name, buffer in module.named_buffers():
        buffer.copy_(_live(tree["buffers"][name]))


def _live(value: Any) -> Any:
    if isinstance(value, nodes.Leaf):
        return torch.from_numpy(value.array())
    if isinstance(value, dict):
        return {key: _live(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_live(item) for item in value)
    return value
