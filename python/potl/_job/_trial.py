# SPDX-License-Identifier: Apache-2.0
"""Tries a task for some steps before anything is agreed: can it be replayed, and bit for bit?

Cost of a task without problems: six steps, each of them twice, or up to sixty if they take seconds,
and a few more; two builds (a third where there are schedulers), and for `Job.create` one reading of
the data.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from .. import _core
from .._arithmetic import _arithmetic
from .._base._errors import (
    MismatchError,
    NotReplayable,
    NotReproducible,
    Problem,
    is_out_of_memory,
    is_own_trouble,
)
from .._task._capture import is_torchs
from .._task._data import check_reads
from .._task._portable import Watcher
from .._task._schedule import own_order
from .._task._task import Task, has_loss, no_gradient, overrides
from .._task._trees import same_float
from .._task._visible import evaluated, visible
from ._build import Build
from ._dormant import Attributes, acting_later, attributes
from ._draft import Draft, draft, head_of
from ._failed_step import obstacle, refused, tell_batch
from ._first_steps import end_of
from ._late_forms import LateForms
from ._left_gradients import added_to, left_by
from ._lost_types import lost_order, lost_types
from ._more_steps import MoreSteps, difference
from ._moved import as_state, listed, marks_of, moved
from ._recipe import Options, changed_options, options_of
from ._same_batches import SameBatches, other_batch
from ._scalers import Counts, lost_scaler, scaler_counts
from ._session import Session, StepResult
from ._steps import parameters_of
from ._structure import Structure
from ._unused_options import reads, unused

# Two forward passes of the same step may round differently on a GPU.
_CLOSE = 1e-3

# Samples that are drawn before a batch is made a second time.
_DRAWN = 256

# For code of the user's, and for a library's, which nobody has to rewrite.
_KEEP_IT = (
    "pass state={name: an object with state_dict and load_state_dict}, which may be a small class "
    "of yours that reads and writes the attribute of another's module; in a module of your own, "
    "make it a buffer, in an optimizer an option of its groups"
)
Say = Callable[[str], None]

_log = logging.getLogger("potl")
_said: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a task showed of itself."""

    arithmetic: str
    """What the steps computed in: never "auto"."""
    problems: tuple[Problem, ...] = ()
    """What cannot be replayed."""
    obstacles: tuple[Problem, ...] = ()
    """What kept "auto" from an exact arithmetic."""
    draft: Draft | None = None
    """What a job is made of, if that was asked for and there are no problems."""
    state_bytes: int = 0
    """Size of a state after a step, in which optimizers have made theirs; 0 without steps."""


def run_trial(
    build: Build,
    *,
    seed: int,
    arithmetic: str,
    probe: bool = True,
    drafted: bool = False,
    say: Say = lambda text: None,
) -> Trial:
    """Tries a task.

    Args:
        build: Returns the task.
        seed: Of the randomness.
        arithmetic: As in `Job.create`.
        probe: Whether to look for what cannot be replayed. Without it one step is run where the
            arithmetic, the size of a state, or which options an optimizer changes is not known
            without.
        drafted: Whether to make a draft of a job.
        say: Told what is done next.

    Raises:
        MemoryError: A step found no memory, which says nothing of the task.
    """
    auto = arithmetic == _arithmetic.AUTO
    obstacles: tuple[Problem, ...] = ()
    failed = False
    try:
        if auto:
            obstacles = tuple(_arithmetic.missing())
        chosen = arithmetic if not auto else _arithmetic.STOCK if obstacles else _arithmetic.EXACT
        attempt = _Attempt(build, seed, chosen, probe=probe, drafted=drafted, say=say)
        try:
            return replace(attempt.run(), obstacles=obstacles)
        except NotReproducible as error:
            obstacles = attempt.refused or (obstacle(error.message, error.remedy),)
            if not auto:
                again = tuple(replace(one, prevents="replay") for one in obstacles)
                return Trial(arithmetic=chosen, problems=again)
        except NotReplayable:
            raise
        except Exception as error:
            if chosen == _arithmetic.STOCK or not auto or is_own_trouble(error):
                raise
            # What fails in any arithmetic is raised by the attempt that follows.
            text = f"a step fails in {chosen}: {_line(error)}"
            obstacles = (obstacle(text, "if it does not in stock arithmetic, please report it"),)
            failed = True
        stock = _Attempt(build, seed, _arithmetic.STOCK, probe=probe, drafted=drafted, say=say)
        return replace(stock.run(step=failed), obstacles=obstacles)
    except NotReplayable as error:
        return Trial(arithmetic=arithmetic, problems=error.problems)
    except NotReproducible as error:
        # Broken before anything of the task was computed.
        problem = Problem(what=error.message, where="this process", remedy=error.remedy)
        return Trial(arithmetic=arithmetic, problems=(problem,))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryError(
            f"this machine ran out of memory while the task was tried: {_line(error)} (the trial "
            "holds two tasks at a time: free memory, or pass accumulate= to compute a batch in "
            "parts)"
        ) from error


def _no_loss(what: str) -> Problem:
    return Problem(
        what=what,
        where="Task.compute_loss",
        remedy="override compute_loss too, so that it returns the loss that step returns; or leave "
        "both loss= and compute_loss out, if step computes its losses by itself",
    )


def _no_room(error: Exception) -> Problem:
    """Of a log, which all tasks may share."""
    return Problem(
        what=f"a step fails after as many as the training has, and replays make more: "
        f"{_line(error)}",
        where="Task.step",
        remedy="keep a log that is as long as the training in the body of a loop around "
        "Prover.steps()",
    )


def _has_other_cause(error: Exception) -> bool:
    """Whether something else than the task's code made it fail."""
    known = (NotReproducible, NotReplayable, MismatchError)
    return isinstance(error, known) or is_own_trouble(error)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


class _Attempt:
    """One trial in one arithmetic."""

    def __init__(
        self,
        build: Build,
        seed: int,
        arithmetic: str,
        *,
        probe: bool,
        drafted: bool,
        say: Say,
    ) -> None:
        self._build = build
        self._seed = seed
        self._arithmetic = arithmetic
        self._probe_wanted = probe
        self._drafted = drafted
        self._say = say
        self._state_bytes = 0
        self._stepped: list[set[str]] = []
        self._not_updated: Options | None = None
        self._rates: dict[int, list[float]] = {}
        self._ends: dict[int, str] = {}
        self._left: set[str] = set()
        self._moved: list[tuple[object, ...]] = []
        self._repeats = 0
        self._read: set[str] = set()
        self._scalers: Counts = []
        self.refused: tuple[Problem, ...] = ()

    def run(self, *, step: bool = False) -> Trial:
        """Raises what the task's code raises.

        Args:
            step: Whether to run a step even where nothing has to be known of it.
        """
        watcher = Watcher()
        self._say("building the task")
        with watcher if self._drafted else contextlib.nullcontext():
            first = self._open()
        with first:
            start = first.capture()
            self._structure = Structure(first.task, start)
            head = head_of(first.task, self._build) if self._drafted else None
            problems = self._problems(first, start) if self._probe_wanted else []
            stock = self._arithmetic == _arithmetic.STOCK
            known = stock and not step and all(map(is_torchs, first.task.optimizers))
            if not self._probe_wanted and not known:
                self._two_steps(first, (1,))
            if not problems and self._not_updated is not None:
                self._update(first, self._not_updated)
            made = None
            if head is not None and not problems:
                first.restore(start)  # code that makes batches may look at it
                made = draft(
                    self._build,
                    self._seed,
                    first.task,
                    head,
                    start,
                    watcher,
                    stepped=self._stepped,
                    ends=[*self._ends.values()],
                    exact=not stock,
                    say=self._say,
                )
                problems += made.unscheduled(self._rates)
            return Trial(
                arithmetic=self._arithmetic,
                problems=tuple(problems),
                draft=None if problems else made,
                state_bytes=self._state_bytes,
            )

    def _open(self) -> Session:
        return Session.open(self._build, seed=self._seed, arithmetic=self._arithmetic)

    def _problems(self, first: Session, start: _core.State) -> list[Problem]:
        problems = [*visible(first.task)]
        if problems:
            return problems
        try:
            batches = SameBatches(first, 1, start)  # before anything else is read
        except NotReplayable as error:
            problems = [*error.problems]
        problems = check_reads(first.task.dataset, first.task.transform) or problems
        if problems:
            return problems
        order = own_order(first.task, self._seed)
        if order is not None:
            order.require_repeatable()
        self._say("building it again")
        with self._open() as second:
            try:
                problems = list(self._probe(first, second, start))
                if order is not None:
                    order.require_repeatable()  # steps that change the sampler have other symptoms
                # What reading changes has other symptoms, too.
                return self._drawn(first, batches, start, more=not problems) or problems
            except MismatchError as error:  # of a state that is restored
                return [
                    Problem(
                        what=f"a state of the first steps does not fit a task that is built: "
                        f"{error.message}",
                        where=error.message.partition(": ")[0],
                        remedy="give it in build() the form that it has during training: run one "
                        "batch through the model, as observers of quantisation need, give a buffer "
                        "its largest size with a count of what is used, or None until it is made "
                        "once",
                    )
                ]

    def _probe(self, first: Session, second: Session, start: _core.State) -> Iterator[Problem]:
        if _shares(first.task, second.task):
            yield Problem(
                what="two calls of build return the same model",
                where="build",
                remedy="make model and optimizer inside build",
            )
            return
        place = difference(start, second)
        if place is not None:
            yield Problem(
                what=f"two calls of build differ at {place}",
                where="build",
                remedy="draw from torch, random or numpy.random inside build: potl seeds them; "
                "and fill what torch.empty() makes: some modules of libraries leave it as it is",
            )
            return
        steps = (1, 2) if first.task.steps > 1 else (1, 1)
        middle, end, losses, kept = self._two_steps(first, steps)
        late = LateForms(first.task, None)
        late.see(0, start)
        late.see(1, middle)
        late.see(2, end)
        useless = unused(first.task, self._read)
        if useless is not None:
            yield useless
            return
        evaluation = evaluated(first.task)
        if evaluation and evaluation not in _said:
            _said.add(evaluation)
            _log.warning("%s", evaluation)
        for what, state in (("before the first step", start), ("after two steps", end)):
            # An infinity that is there from the start is a mask.
            not_finite = _core.not_finite(state, start)
            if not_finite:
                yield Problem(
                    what=f"{what}, {not_finite}, and no verifier accepts what is not finite",
                    where=not_finite.split(" ")[0],
                    remedy="where training diverges, lower the learning rate or pass grad_clip=; "
                    "in float16 pass autocast= and a scaler= instead of halving the model, or "
                    "train in bfloat16; where the value is a "
                    "placeholder, give it a number inside build once the model is made, "
                    "whoever wrote the module (with torch.no_grad(): "
                    "model.get_buffer(name).zero_())",
                )
                return
        untouched = attributes(second.task)
        self._say("repeating the second step from a restored state")
        second.restore(middle)
        lost = lost_types(first.task, second.task)
        if lost is not None:
            yield lost
            return
        reordered = lost_order(first.task, second.task)
        try:
            self._repeats = 1
            with scaler_counts() as scalers:
                result = second.run_step(steps[1], second.sample_ids(steps[1]))
        except Exception as error:
            yield self._fails(second, error)
            return
        lost = lost_scaler(self._scalers, scalers)
        if lost is not None:
            yield lost
            return
        hidden = difference(end, second)
        if hidden is not None or not same_float(result.loss, losses[1]):
            reason = self._reason(second, steps, end, losses, hidden)
            if reason is not None:
                yield self._added(second, middle, steps[1]) or reordered or reason
                return

        def changed() -> bool:
            second.restore(middle)  # which puts right what a checkpoint holds
            self._repeats += 1
            second.run_step(steps[1], second.sample_ids(steps[1]))
            return difference(end, second) is not None

        problem = acting_later(first.task, second.task, untouched, kept, changed, _KEEP_IT)
        # Only now: it calls the model once more, which would hide a count of calls.
        problem = problem or self._other_loss(second, middle, steps[1], losses[1])
        if first.task.steps > 2:
            end = middle  # the memory of one of them: what these repeats end in is not asked
            problem = problem or self._more(first, second, middle, losses, changed, late)
        problem = problem or self._added(second, middle, steps[1])
        if problem is not None:
            yield problem

    def _more(
        self,
        first: Session,
        second: Session,
        early: _core.State,
        losses: list[float],
        changed: Callable[[], bool],
        late: LateForms,
    ) -> Problem | None:
        """Whether more steps come out otherwise from restored states, or make something new."""
        self._say("training some more steps")
        more, is_trained = MoreSteps(first, early, losses), False
        try:
            is_trained = more.train(self._step)
            if not is_trained:
                return None
            self._structure.require(len(more.losses), more.end)
            self._say("repeating them from restored states")
            while more.in_step(self._repeats):
                changed()
            place = more.difference(second)
        except Exception as error:
            is_full = len(more.losses) + self._repeats + more.repeated >= first.task.steps
            if is_full and not _has_other_cause(error):
                return _no_room(error)
            if not is_trained:
                raise
            return self._fails(second, error)
        if place is None:
            return late.problem(len(more.losses), more.end)
        steps = tuple(range(1, len(more.losses) + 1))
        return self._reason(second, steps, more.end, more.losses, place)

    def _fails(self, second: Session, error: Exception) -> Problem:
        if _has_other_cause(error):
            raise error
        return Problem(
            what="a step from a restored state fails, and the same step in one go does not: "
            f"{_line(error)}",
            where=listed(self._moved) or "Task",
            remedy=self._remedy(second),
        )

    def _drawn(
        self, first: Session, batches: SameBatches, start: _core.State, *, more: bool
    ) -> list[Problem]:
        """Whether data code makes other batches once it has made some; or some hundred `more`."""
        if first._has_plain_batches:
            return []
        count = min(-(-_DRAWN // first.task.batch_size), first.task.steps) if more else 0
        self._say("drawing batches")
        now = first.capture()
        for step in range(1, count + 1):
            first.batch(step, first.sample_ids(step))
        problem = batches.problem(now, lambda: start)
        return [] if problem is None else [problem]

    def _other_loss(
        self, second: Session, middle: _core.State, step: int, loss: float
    ) -> Problem | None:
        """Whether `compute_loss`, where there is one, gives something else than the step."""
        if not has_loss(second.task):
            return None
        self._say("computing its loss again")
        second.restore(middle)
        try:
            recomputed = second.loss_at(step, second.sample_ids(step))
        except Exception as error:
            if _has_other_cause(error):
                raise
            return _no_loss(f"compute_loss fails where step does not: {_line(error)}")
        if not _all_close([recomputed], [loss]):
            return _no_loss(f"compute_loss gives {recomputed!r} where step reports {loss!r}")
        return None

    def _added(self, session: Session, before: _core.State, step: int) -> Problem | None:
        """Whether the second step needs gradients of the first: last, as it takes a step more."""
        if not self._left or not overrides(session.task, "step"):
            return None
        return added_to(session, before, self._left, step, session.sample_ids(step))

    def _reason(
        self,
        second: Session,
        steps: tuple[int, ...],
        end: _core.State,
        losses: list[float],
        hidden: str | None,
    ) -> Problem | None:
        """Why a step from a restored state came out otherwise; None when this machine computes
        nothing twice in the same way.
        """
        self._say("training these steps once more")
        with self._open() as fresh:
            other_losses = [self._step(fresh, step).loss for step in steps]
            place = difference(end, fresh)
            other_data = place is not None and other_batch(second, fresh, steps[0])
        if place is None:
            return Problem(
                what="a step from a restored state differs from the same step in one go"
                + (f" at {hidden}" if hidden else " in its loss"),
                where=listed(self._moved) or "Task",
                remedy=self._remedy(second),
            )
        # Two runs in stock arithmetic may round differently, and in exact arithmetic in nothing.
        # Over many steps, however, what is rounded otherwise grows.
        close = len(steps) > 2 or _all_close(losses, other_losses)
        if self._arithmetic != _arithmetic.STOCK or not close:
            if other_data:
                return Problem(
                    what="two calls of build make other batches of the same samples",
                    where="dataset",
                    remedy="draw inside build, from torch, random or numpy.random: potl seeds "
                    "them; a generator that is made outside of build goes on from call to call",
                )
            return Problem(
                what=f"two trainings from the same seed differ at {place}",
                where="Task.step",
                remedy="draw random numbers from torch, random or numpy.random only, and use no "
                "clock; seed or switch off inside build what a library draws elsewhere; what a "
                "global variable, a class or a file keeps from step to step, make a buffer of the "
                "model or an object in state=",
            )
        return None

    def _remedy(self, session: Session) -> str:
        argument = as_state(self._moved, session.task)
        hidden = "something keeps state that a checkpoint does not hold"
        if argument is not None:
            return f"{hidden}: pass {argument} to potl.Task"
        if not self._moved:
            return (
                f"{hidden}, and no attribute shows it: draw from the global generators of torch, "
                "random or numpy.random instead of one of your own; what a global variable or a "
                "closure keeps, make a buffer of the model or an object in state="
            )
        return f"{hidden}, such as a Python attribute: {_KEEP_IT}"

    def _two_steps(
        self, session: Session, steps: tuple[int, ...]
    ) -> tuple[_core.State, _core.State, list[float], Attributes]:
        """The state after the first step and after the last, all losses, and what attributes were
        after the first step.
        """
        losses, middle, skipped, kept = [], None, True, attributes(session.task)
        options, marks = options_of(session.task), marks_of(session.task)
        stepped: list[set[str]] = [set() for _ in options]
        for number, step in enumerate(steps, start=1):
            self._say(f"trying step {number} in {self._arithmetic} arithmetic")
            with reads(session.task) as read, scaler_counts() as self._scalers:
                result = self._step(session, step)
            self._read |= read
            losses.append(result.loss)
            skipped = skipped and result.skipped
            if number == 1:
                self._left, kept = left_by(session.task), attributes(session.task)
            end = session.capture()
            self._structure.require(step, end)
            # After each step: the second one may put back what the first one changed.
            for names, more in zip(stepped, changed_options(options, session.task), strict=True):
                names |= more
            if len(losses) == step:  # and not the first step again
                self._rates[step] = result.rates
                if self._drafted and _core.pins_first_steps(self._arithmetic):
                    self._ends[step] = end_of(end, result.loss)
            middle = middle or end
        if not session.task._depended and not overrides(session.task, "step"):
            raise no_gradient()
        assert middle is not None
        self._moved = moved(marks, marks_of(session.task))
        self._state_bytes = end.nbytes
        self._stepped = stepped
        self._not_updated = options if skipped else None
        return middle, end, losses, kept

    def _step(self, session: Session, step: int) -> StepResult:
        ids = session.sample_ids(step)
        try:
            return session.run_step(step, ids)
        except NotReproducible as error:
            self.refused = refused(session, step, ids, error, self._arithmetic)
            raise
        except Exception as error:
            tell_batch(error, session, step, ids)
            raise

    def _update(self, session: Session, options: Options) -> None:
        """Makes the update that the scaler skipped in every step: what an arithmetic refuses of it,
        and which options it changes, shows in no other way. The session is of no use afterwards.
        """
        task = session.task
        self._say(f"trying an update in {self._arithmetic} arithmetic")
        zeros = [torch.zeros_like(p) if p.requires_grad else None for p in parameters_of(task)]
        try:
            session.apply(session.step, zeros, 0.0)
        except Exception as error:
            if _has_other_cause(error):
                raise
            return  # a step of the user's own may update in another way
        self._stepped = changed_options(options, task)


def _shares(a: Task, b: Task) -> bool:
    own = {p.data_ptr() for p in a.model.parameters() if p.numel()}
    return any(p.data_ptr() in own for p in b.model.parameters() if p.numel())


def _all_close(a: list[float], b: list[float]) -> bool:
    return all(
        same_float(x, y) or abs(x - y) <= _CLOSE * max(abs(x), abs(y))
        for x, y in zip(a, b, strict=True)
    )
