# SPDX-License-Identifier: Apache-2.0
"""The evidence of a dispute: who has no task computes the ruling again, nothing in the file can be
changed, and people can read it."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
import pytest
import traced_nets
from disputed import Liar, false_run
from hypothesis import given, settings, strategies as st

import potl
from potl import _core
from potl._dispute import _account, _answers, _decoding, _encoding, _referee
from potl._dispute._derive import derive_operators
from potl._dispute._encoding import Reference, TensorOutline
from potl._dispute._operators import Operator
from potl._dispute._outline import StateOutline

pytest.importorskip("potl._torch", reason="potl was built without torch")

FULL = bool(os.environ.get("POTL_FULL"))
AT = 3
ERRORS = (potl.MalformedError, potl.MismatchError, potl.MissingError, potl.LimitError)
# Operators of the step: the batch as a view, a product with a bias, drawn numbers, a gradient.
VIEW, PRODUCT, DRAWN, GRADIENT = 0, 2, 6, 28


def short() -> potl.Task:
    task = traced_nets.mlp()
    task.max_steps = 4
    return task


@dataclasses.dataclass
class Case:
    """A run that is false from a step on, and its honest auditor."""

    job: potl.Job
    folder: Path
    key: _core.SigningKey
    false: potl.Run
    made: dict[int | None, potl.Verdict] = dataclasses.field(default_factory=dict)

    def liar(self, operator: int | None) -> Liar:
        """The trainer, lying about one operator; None: about the state after the step."""
        return Liar(self.false, job=self.job, task=short, key=self.key, at=AT, operator=operator)

    def against(self, trainer: potl.Party, referee: potl.Referee | None = None) -> potl.Verdict:
        return potl.dispute(
            trainer=trainer,
            auditor=potl.Party(self.folder / "audit", job=self.job, task=short),
            referee=referee or potl.Referee(self.job, task=short),
        )

    def dispute(self, operator: int | None, referee: potl.Referee | None = None) -> potl.Verdict:
        return self.against(self.liar(operator), referee)

    def verdict(self, operator: int | None) -> potl.Verdict:
        """The same, made once."""
        if operator not in self.made:
            self.made[operator] = self.dispute(operator)
        return self.made[operator]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("evidence")
    key = _core.SigningKey.generate()
    (folder / "trainer.pub").write_text(key.public_key.to_pem())
    job = potl.Job.create(
        short, seed=3, checkpoint_every=2, trainer=folder / "trainer.pub", arithmetic="ord32"
    )
    job.write(folder / "job.json")
    false = false_run(short, job, AT, folder / "false", key)
    potl.audit(false, job=job, task=short, log=folder / "audit", to_the_end=True)
    return Case(job, folder, key, false)


# ---------------------------------------------------------------------- without the task


@pytest.mark.parametrize("operator", [PRODUCT, GRADIENT, None])
def test_a_ruling_about_an_element_is_computed_again_without_the_task(
    operator: int | None, case: Case
) -> None:
    verdict = case.verdict(operator)
    judged = potl.judge(verdict.evidence, job=case.job)
    assert (judged.winner, judged.why, judged.recomputed) == ("auditor", "value", True)
    # The question for the state, and how many operators the step has.
    assert judged.believed == 2
    assert any("its ruling was computed again" in line for line in judged.lines())
    with_task = potl.judge(verdict.evidence, job=case.job, task=short)
    assert (with_task.believed, with_task.recomputed) == (0, True)


@pytest.mark.parametrize("operator", [VIEW, DRAWN])
def test_what_the_batch_or_the_generator_decides_is_believed(operator: int, case: Case) -> None:
    judged = potl.judge(case.verdict(operator).evidence, job=case.job)
    assert (judged.winner, judged.recomputed) == ("auditor", False)
    assert judged.believed == 5
    assert not any("computed again" in line for line in judged.lines()[1:])
    assert any("also who is right: the task decides that" in line for line in judged.lines())


class Forger(potl.Referee):
    """Changes what it decides."""

    change: Callable[[Any], Any]

    def _decide(self, now: Any) -> Any:
        return self.change(super()._decide(now))


def forged(case: Case, change: Callable[[Any], Any]) -> Forger:
    referee = Forger(case.job, task=short)
    referee.change = change  # type: ignore[method-assign]
    return referee


def other_ruling(made: Any, **facts: object) -> Any:
    """A ruling with other facts, and without those that are None."""
    seen = json.loads(made.evidence) | facts
    kept = {name: value for name, value in seen.items() if value is not None}
    return _core.DisputeRuling(
        made.why,
        trainer_wrong=made.trainer_wrong,
        auditor_wrong=made.auditor_wrong,
        evidence=_core.canonical_json(kept),
    )


def convicts_the_auditor(made: Any) -> Any:
    if not isinstance(made, _core.DisputeRuling):
        return made
    return _core.DisputeRuling("value", auditor_wrong=True, evidence=made.evidence)


def tells_another_element(made: Any) -> Any:
    return other_ruling(made, element=1) if isinstance(made, _core.DisputeRuling) else made


def asks_for_more(made: Any) -> Any:
    if isinstance(made, _core.DisputeQuestion) and b"elements" in made.text:
        return _core.DisputeQuestion(made.text, made.max_bytes + 1)
    return made


@pytest.mark.parametrize("change", [convicts_the_auditor, tells_another_element, asks_for_more])
def test_a_referee_that_decides_something_else_is_found_out(
    change: Callable[[Any], Any], case: Case
) -> None:
    with pytest.raises(potl.MismatchError, match="another decision"):
        case.dispute(PRODUCT, forged(case, change))


def test_descriptions_that_no_leaf_is_bound_to_prove_nothing(case: Case) -> None:
    """Another operator, another operand, no description, and what no operator is."""
    facts = json.loads(base64.b64decode(_ruling_of(case.verdict(PRODUCT))["evidence"]))
    described = {int(n): base64.b64decode(text) for n, text in facts["operators"].items()}
    true = _decoding.described(described[PRODUCT])
    doubled = dataclasses.replace(true, arguments={**true.arguments, "alpha": 2})
    for texts in (
        {**described, PRODUCT: doubled.description},
        {**described, 1: doubled.description},
        {PRODUCT: described[PRODUCT]},
        {**described, PRODUCT: b"\x09"},
        {-1: b""},
    ):
        operators = {str(n): base64.b64encode(text).decode() for n, text in texts.items()}

        def change(made: Any, operators: Any = operators) -> Any:
            ruling = isinstance(made, _core.DisputeRuling)
            return other_ruling(made, operators=operators) if ruling else made

        made = case.dispute(PRODUCT, forged(case, change))
        verdict = potl.judge(made.evidence, job=case.job)
        assert (verdict.winner, verdict.recomputed) == ("auditor", False)
        assert verdict.believed >= 4


def _ruling_of(verdict: potl.Verdict) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(verdict.evidence.transcript.splitlines()[-1])["entry"]
    return found


# ---------------------------------------------------------------------- made-up operators


def outline(*shape: int) -> TensorOutline:
    return TensorOutline("float32", shape, None)


MATRICES = (outline(2, 3), outline(3, 4))
OPERANDS = {"self": Reference("state/a"), "mat2": Reference("state/b")}


def product(*forms: TensorOutline, name: str = "aten.mm.default") -> Operator:
    return Operator(name, dict(OPERANDS), (outline(2, 4),), inputs=forms)


def test_only_operators_whose_work_is_bounded_are_called() -> None:
    from potl._dispute._onlooker import is_bounded

    assert is_bounded(product(*MATRICES))
    assert not is_bounded(product(outline(2, 1 << 40), outline(3, 4)))
    assert not is_bounded(product(outline(2, 3), outline(1 << 40, 4)))
    assert not is_bounded(product(outline(*[1] * 9), outline(3, 4)))
    assert not is_bounded(dataclasses.replace(product(*MATRICES), drawn=bytes(32)))
    one = Operator("aten.add.Tensor", {"self": Reference("state/a")}, (outline(4),))
    assert is_bounded(dataclasses.replace(one, inputs=(outline(4),)))
    assert not is_bounded(dataclasses.replace(one, arguments={"dtype": "_dynamo"}))
    sums = Operator("aten.sum.dim_IntList", {}, (outline(1),), inputs=(outline(1 << 20, 1 << 20),))
    assert not is_bounded(sums)
    weight = Operator(
        "aten.convolution.default",
        {"transposed": False},
        (outline(1, 1, 1, 1),),
        inputs=(outline(1, 1, 1, 1), outline(1, 1 << 15, 1 << 15, 1)),
    )
    assert not is_bounded(weight)
    small = dataclasses.replace(weight, inputs=(outline(1, 1, 1, 1), outline(1, 1, 1, 1)))
    assert is_bounded(small)
    assert not is_bounded(dataclasses.replace(small, arguments={"transposed": True}))
    for name in (
        "aten.from_file.default",
        "aten.full.default",
        "aten.repeat.default",
        "aten.expand.default",
        "aten.native_layer_norm.default",
        "aten.convolution_backward.default",
        "aten._foreach_norm.Scalar",
        "aten.mvlgamma.default",
    ):
        assert not is_bounded(Operator(name, {}, (outline(1),))), name


def test_an_operator_that_is_not_bounded_is_not_called(case: Case) -> None:
    from potl._dispute import _onlooker
    from potl._dispute._referee import Step
    from potl._dispute._rounded import Entries

    harmful = Operator("aten.full.default", {}, (outline(1 << 40),))
    onlooker = _onlooker.Onlooker(case.job, {})
    with pytest.raises(_onlooker._Believed):
        onlooker._disputed(Step(StateOutline({}), {0: harmful}, Entries()), 0)


def test_operators_are_read_as_they_are_written() -> None:
    arguments = {
        "self": Reference("operator/1/0"),
        "dim": None,
        "keepdim": False,
        "dtype": "float32",
    }
    for operator in (
        product(),
        Operator("aten.mean.dim", arguments, (outline(), 1, 2.5)),
        Operator("capture", {"state": {"a": (Reference("state/a"), "contiguous")}}, (outline(32),)),
        Operator("aten.bernoulli_.float", dict.fromkeys(("self", "p", "generator")), ()),
    ):
        drawn = bytes(range(32)) if "bernoulli" in operator.name else None
        operator = dataclasses.replace(operator, drawn=drawn)
        read = _decoding.described(operator.description)
        assert read.structure == operator.structure
        assert list(read.arguments) == list(operator.arguments)
    with pytest.raises(potl.MalformedError, match="other arguments"):
        _decoding.described(Operator("aten.mm.default", {**OPERANDS, "more": 1}, ()).description)
    for name in ("aten.nothing.default", "aten.mm.nothing", "os.system", "aten", "capture"):
        with pytest.raises(potl.MalformedError):
            _decoding.described(Operator(name, dict(OPERANDS), ()).description)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(0, 9), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(VALUES, st.integers(0, 1 << 16), st.integers(0, 255))
def test_reading_a_value_returns_it_or_says_that_it_is_none(value: Any, at: int, byte: int) -> None:
    text = _encoding.encode(value)
    assert _encoding.encode(_decoding.decoded(text)) == text
    changed = bytearray(text)
    changed[at % len(text)] = byte
    for data in (text[: at % len(text)], text + bytes([byte])):
        with pytest.raises(potl.MalformedError):
            _decoding.decoded(data)
    with contextlib.suppress(potl.MalformedError):
        _decoding.decoded(bytes(changed))


def test_reading_ends_where_somebody_nests_without_end() -> None:
    for tag in (7, 8, 9):
        with pytest.raises(potl.MalformedError):
            _decoding.decoded((bytes([tag]) + (1).to_bytes(8, "little")) * 10_000)
    with pytest.raises(potl.MalformedError):
        _decoding.decoded(bytes([7]) + b"\xff" * 8)


# ---------------------------------------------------------------------- the file


def test_every_bit_of_a_file_counts(case: Case, tmp_path: Path) -> None:
    """Of a dispute that is over at once: both committed to the same."""
    party = potl.Party(case.false, job=case.job, task=short, key=case.key)
    verdict = potl.dispute(trainer=party, auditor=party, referee=potl.Referee(case.job, task=short))
    path = tmp_path / "evidence.json"
    verdict.evidence.write(path)
    text = path.read_bytes()
    assert potl.judge(path, job=case.job).why == "agreement"
    for at in range(0, len(text), 1 if FULL else 3):
        for bit in range(8) if FULL else (at % 8,):
            changed = bytearray(text)
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            with pytest.raises(ERRORS):
                potl.judge(path, job=case.job)


def canonical(document: dict[str, Any]) -> str:
    return _core.canonical_json(document).decode()


def test_a_file_has_one_form(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    case.verdict(None).evidence.write(path)
    text = path.read_text()
    document = json.loads(text)
    keys = document["keys"]
    pem = keys["referee"].replace("\n", "\r\n")
    for changed in (
        json.dumps(document, indent=1),
        text + "\n",
        json.dumps(dict(reversed(document.items())), separators=(",", ":")),
        text.replace(document["job"], document["job"].upper()),
        canonical({**document, "keys": {**keys, "referee": pem}}),
        canonical({**document, "keys": {**keys, "judge": keys["referee"]}}),
        canonical({**document, "keys": {"trainer": keys["trainer"]}}),
        canonical({**document, "keys": {**keys, "referee": 7}}),
        canonical({**document, "keys": []}),
        canonical({**document, "more": 1}),
        canonical({**document, "format": "potl-dispute-evidence-v2"}),
        "[]",
        "[" * 100_000,
        "",
    ):
        path.write_text(changed)
        with pytest.raises(potl.MalformedError):
            potl.DisputeEvidence.read(path)


def test_judging_needs_torch_for_nothing_but_an_element(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    case.verdict(None).evidence.write(path)
    code = (
        "import sys, potl._dispute._account as a, potl._dispute._evidence as e;"
        "e._described = lambda given: {};"
        f"print(a.account({str(path)!r}, job={str(case.folder / 'job.json')!r})['status']);"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "judged\n", done.stderr


# ---------------------------------------------------------------------- for people


def inspected(path: Path, *more: str) -> tuple[int, str]:
    command = [programs.command(), "inspect", str(path), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_people_read_who_is_right_and_why(case: Case, tmp_path: Path) -> None:
    verdict = case.verdict(PRODUCT)
    path, page = tmp_path / "evidence.json", tmp_path / "page.html"
    verdict.evidence.write(path)
    code, text = inspected(path, "--job", str(case.folder / "job.json"), "--html", str(page))
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == "\u2717 The trainer is wrong"
    assert f"step {AT}; operator {PRODUCT}, aten.addmm.default" in text
    assert "Computed    the ruling, from what both opened" in text
    assert "vouches for those of: auditor, referee" in text
    numbers = [one.split()[-2:] for one in lines if one.startswith(("True", "Trainer", "Auditor"))]
    assert [data for _, data in numbers] == [
        verdict.facts[name] for name in ("true", "trainer", "auditor")
    ]
    assert numbers[0] == numbers[2] != numbers[1] and numbers[0][0] != numbers[1][0]
    assert float(numbers[0][0])
    assert "The trainer is wrong" in page.read_text()


def test_what_is_not_checked_looks_like_no_verdict(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    case.verdict(PRODUCT).evidence.write(path)
    code, text = inspected(path)
    assert code == 0 and text.startswith("? Not checked\n")
    assert "right" not in text and "True value" not in text and "Operators: 57" in text
    document = json.loads(path.read_text())
    at = document["transcript"].index('"trainer_wrong":true')
    transcript = (
        document["transcript"][:at] + '"trainer_wrong":false' + document["transcript"][at + 20 :]
    )
    path.write_bytes(_core.canonical_json({**document, "transcript": transcript}))
    code, text = inspected(path, "--job", str(case.folder / "job.json"))
    assert code == 4 and text.startswith("? This is not valid evidence: it shows nothing\n")
    assert "True value" not in text and "right" not in text


def test_who_opened_one_end_is_asked_for_more_than_the_state() -> None:
    plain, end = (_account._asked({"ask": "state", **more}) for more in ({}, {"end": True}))
    assert end.startswith(plain) and "NaN" in end and "NaN" not in plain


def test_a_transcript_of_anything_is_told(tmp_path: Path, case: Case) -> None:
    """Nobody who writes a file can make the account fail or grow."""
    keys = case.verdict(None).evidence.keys
    real = case.verdict(PRODUCT).evidence.transcript.splitlines()

    def claim(who: str, index: int, digest: str) -> str:
        said = {"what": "claim", "level": 0, "index": index, "content": {"digest": digest}}
        message = base64.b64encode(json.dumps(said).encode()).decode()
        return json.dumps({"entry": {"kind": "message", "from": who, "message": message}})

    lines = [
        *("", "[]", "{}", '{"entry":1}', '{"entry":{"kind":{}}}', '{"at":"x","entry":{"kind":7}}'),
        '{"entry":{"kind":"message","from":"trainer","message":7}}',
        claim("trainer", -1, "x" * 9999),
        *(claim("trainer", index, "a") for index in range(10, 110)),
        claim("auditor", 10, "a"),
        claim("auditor", 11, "b"),
        json.dumps({"entry": {"kind": "k" * 9999}}),
        '{"entry":{"kind":"next","of":"<b>","size":-1}}',
        '{"entry":{"kind":"question","question":"!!"}}',
        *['{"entry":{"kind":"next","of":"steps","size":9}}'] * 20,
        *real,
        *["[" * 2000] * 3000,
    ]
    evidence = potl.DisputeEvidence(case.job.id, keys, "\n".join(lines) + "\n")
    evidence.write(tmp_path / "evidence.json")
    found = _account.account(tmp_path / "evidence.json", job=case.job)
    assert found["status"] == "invalid" and found["verdict"] == {} and found["values"] == {}
    assert len(json.dumps(found)) < 1 << 20
    assert found["lines_left_out"] == len(lines) - 2000
    rounds = found["bisections"][0]["rounds"]  # type: ignore[index]
    assert [one["index"] for one in rounds] == list(range(10, 74))
    assert [one["equal"] for one in rounds] == [True, *[False] * 63]
    assert max(len(line["kind"]) for line in found["lines"]) == 200  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("dtype", "data", "shown"),
    [
        ("float32", "0000803f", "1"),
        ("float32", "0100803f", "1.00000012"),
        ("float32", "0000c07f", "nan"),
        ("bfloat16", "803f", "1"),
        ("float16", "003c", "1"),
        ("float64", "000000000000f03f", "1.0"),
        ("int64", "ffffffffffffffff", "-1"),
        ("bool", "01", "True"),
        ("complex64", "0000803f00000000", ""),
        ("float32", "00", ""),
        (None, "00", ""),
        ({}, "00", ""),
    ],
)
def test_bytes_are_shown_as_the_number_that_they_are(dtype: object, data: str, shown: str) -> None:
    assert _account.shown_number(dtype, bytes.fromhex(data)) == shown


# ---------------------------------------------------------------------- parties and answers


def outlined(case: Case, step: int) -> StateOutline:
    party = potl.Party(case.folder / "audit", job=case.job, task=short)
    return StateOutline.of(party._state_before(step))


def test_a_party_starts_from_the_state_before_the_step(case: Case) -> None:
    party = potl.Party(case.folder / "audit", job=case.job, task=short)
    for step in range(1, 5):
        assert outlined(case, step).digest() == party._evidence.state_digest(step - 1)


def test_a_state_of_another_step_derives_nothing(case: Case) -> None:
    with pytest.raises(potl.MismatchError, match="after step 2"):
        derive_operators(short, case.job, 4, before=outlined(case, 3))
    for step in (0, 5):
        with pytest.raises(potl.UsageError, match="no step"):
            derive_operators(short, case.job, step, before=outlined(case, 3))


def test_states_in_answers_have_the_elements_that_decide(case: Case) -> None:
    state = outlined(case, 3)
    single = TensorOutline("float32", (), _core.content_root(bytes(4)), data=bytes(4))
    large = TensorOutline("float32", (2,), _core.content_root(bytes(8)))
    for other, refused in (
        (single, False),
        (large, False),
        (dataclasses.replace(single, data=None), True),
        (dataclasses.replace(large, data=bytes(8)), True),
        (dataclasses.replace(single, data=b"\x01\0\0\0"), True),
    ):
        changed = StateOutline({**state.tree, "more": other})
        document = _answers.state_to_json(changed)
        if not refused:
            assert _answers.state_from_json(document, changed.digest()) == changed
            continue
        with pytest.raises(potl.MismatchError, match="element"):
            _answers.state_from_json(document, changed.digest())


def test_chunks_in_answers_are_those_that_were_asked_for() -> None:
    document = _answers.chunks_to_json({0: [(3, b"a", []), (5, b"b", [])]})
    assert len(_answers.chunks_from_json(document, 0, [3, 5])) == 2
    for wanted in ([3], [3, 4], [5, 3], []):
        with pytest.raises(potl.MalformedError):
            _answers.chunks_from_json(document, 0, wanted)


def test_a_state_is_not_larger_than_the_job_lets_it_be(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_referee, "_LARGEST_SLACK", -(1 << 40))
    verdict = case.dispute(PRODUCT)
    assert (verdict.winner, verdict.why) == (None, "referee")
    assert "far more than the job's first one" in str(verdict.facts["undecided"])


# What is named decides nothing: a liar who tells no program, or a false one, loses as well.
@pytest.mark.parametrize(
    ("more", "marks", "named"),
    [
        (1, lambda true: true + b"more", -1),
        (1, lambda true: true, -1),
        (1, lambda true: None, -1),
        (1, lambda true: 7, -1),
        (1, lambda true: true[:8] + b"more" + true[8:], 2),
        (-1, lambda true: true[:8] + true[12:], 2),
        (0.5, lambda true: true, -1),
    ],
)
def test_a_step_with_another_number_of_operators_is_another_program(
    more: float, marks: Callable[[bytes], Any], named: int, case: Case
) -> None:
    party = case.liar(PRODUCT)
    true = party._answer
    count = 0

    def answer(now: Any) -> bytes:
        nonlocal count
        document = json.loads(true(now))
        if "operators" in document and "state" in document:
            count = document["operators"]
            document["operators"] += more
            told = marks(base64.b64decode(document["marks"]))
            document["marks"] = _answers.as_text(told) if isinstance(told, bytes) else told
        return _core.canonical_json(document)

    party._answer = answer  # type: ignore[method-assign]
    verdict = case.against(party)
    assert (verdict.winner, verdict.why) == ("auditor", "structure")
    assert verdict.operator is not None
    assert verdict.operator[0] == (count - 1 if named < 0 else named)
    assert (verdict.operator[1] == "capture") == (named < 0)


def test_marks_that_find_no_room_are_left_out(case: Case) -> None:
    party = case.liar(PRODUCT)
    asked: list[Any] = []
    true = party._whole_answer

    def answer(now: Any) -> bytes:
        asked.append(json.loads(true(now)))
        if "marks" not in asked[-1]:
            return true(now)
        return _core.canonical_json({**asked[-1], "marks": "x" * now.asked.max_bytes})

    party._whole_answer = answer  # type: ignore[method-assign]
    verdict = case.against(party)
    assert "marks" in asked[0]
    assert (verdict.winner, verdict.why) == ("auditor", "value")


def test_a_step_that_ends_in_another_state_than_was_claimed_is_another_program(case: Case) -> None:
    """Whoever shows the true step for a false state has nothing in it that differs."""
    party = case.liar(None)
    true = potl.Party(case.false, job=case.job, task=short, key=case.key)
    party._story = lambda step: true._story(step)  # type: ignore[method-assign]
    verdict = case.against(party)
    assert (verdict.winner, verdict.why) == ("auditor", "structure")
    assert verdict.operator is not None
    assert verdict.operator[1] == "capture"
