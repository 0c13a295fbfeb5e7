# SPDX-License-Identifier: Apache-2.0
"""docs/format/transcript.md against the library: an implementation made from it reads what potl
writes, and the document's example is what both compute."""

import base64
import re
from pathlib import Path
from typing import Any

import pure_format as pure
import pytest
from places import ROOT
from transcript_helpers import job_text, key, record_run, rejected_by, state_at, tensor

from potl import _core

DOCUMENT = ROOT / "docs/format/transcript.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pure.Run:
    """A run that was resumed once."""
    path = tmp_path_factory.mktemp("run") / "run"
    record_run(path, _core.Job.parse(job_text()), resume_after=3)
    return pure.Run.read(path)


def test_the_log_is_read_and_written_alike(run: pure.Run) -> None:
    assert (run.path / "transcript.log").read_bytes() == pure.format_log(run.payloads)


def test_the_commitment_signs_the_recomputed_root(run: pure.Run) -> None:
    note = pure.parse_note((run.path / "commitment").read_text())
    close = run.records[-1]
    assert isinstance(close, pure.Close)
    assert (note.size, note.root) == (len(run.records), run.root())
    assert note.extensions == [f"final {close.state.hex()}"]
    assert note.origin == note.key_name == f"potl/v1/{close.job_id.hex()}"
    assert note.key_hash == pure.key_hash(note.key_name, key().public_key.raw)
    key().public_key.verify(note.text, note.signature)


def test_the_job_id_is_recomputed(run: pure.Run) -> None:
    text = (run.path / "job.json").read_bytes()
    assert {record.job_id for record in run.records} == {pure.job_id(text)}


def test_batches_are_recomputed(run: pure.Run) -> None:
    for at in run.steps():
        step: Any = run.records[at]
        assert step.sample_ids == pure.digest_of_ids(pure.sample_ids(run.job, step.step))


def test_a_resume_is_signed_over_the_documented_bytes(run: pure.Run) -> None:
    (resume,) = [record for record in run.records if isinstance(record, pure.Resume)]
    before = run.payloads[: resume.log_size]
    assert (resume.from_step, resume.last_step, resume.number) == (2, 3, 1)
    assert resume.log_root == pure.log_root(before)
    key().public_key.verify(pure.resume_message(resume), resume.signature)


def test_state_digests_are_recomputed_from_checkpoints(run: pure.Run) -> None:
    recorded = {"step-0.safetensors": run.records[1].state}  # type: ignore[union-attr]
    branch = ""
    for record in run.records:
        if isinstance(record, pure.Resume):
            branch = f".b{record.number}"
        if isinstance(record, pure.Step) and record.flags & 8:
            recorded[f"step-{record.step}{branch}.safetensors"] = record.state
    files = {path.name: path for path in (run.path / "checkpoints").iterdir()}
    assert set(files) == set(recorded)
    for name, path in files.items():
        _, _, digest = pure.parse_checkpoint(path.read_bytes())
        assert digest == recorded[name]


def test_paths_escape_what_would_make_them_ambiguous() -> None:
    tree = {
        "a/b": tensor([1.0]),
        "a": {"b": tensor([2.0]), 0: tensor([3.0]), "0": tensor([4.0]), "#0": tensor([5.0])},
        "~1": [tensor([6.0])],
        "": tensor([7.0]),
    }
    state = _core.State.capture(tree)
    views = state.tree()
    paths = {views["a/b"].path, views["a"]["b"].path, views["a"][0].path, views["a"]["0"].path,
             views["a"]["#0"].path, views["~1"][0].path, views[""].path}  # fmt: skip
    assert paths == {"a~1b", "a/b", "a/#0", "a/0", "a/~20", "~01/0", ""}


def test_every_kind_of_value_is_encoded_as_documented(tmp_path: Path) -> None:
    tree: dict[str | int, Any] = {
        "values": [None, True, False, -1, 2**63 - 1, -0.0, float("inf"), "\u00e4", b"\x00", ()],
        -5: {"nested": (1, [2.5])},
        "z": tensor([1.0, -1.0]),
        "empty": tensor([], [0, 3]),
    }
    state = _core.State.capture(tree)
    state.save(str(tmp_path / "state.safetensors"))
    decoded, contents, digest = pure.parse_checkpoint((tmp_path / "state.safetensors").read_bytes())
    assert digest == state.digest()
    assert decoded["values"] == tree["values"] and decoded[-5] == tree[-5]
    assert str(decoded["values"][5]) == "-0.0"
    assert len(contents["z"]) == 8 and contents["empty"] == b""


def test_a_log_written_by_the_second_implementation_is_accepted(run: pure.Run) -> None:
    run.write()
    evidence = _core.Evidence.open(
        str(run.path),
        job=_core.Job.parse(job_text()),
        commitment=(run.path / "commitment").read_text(),
    )
    assert rejected_by(evidence.findings()) == set()


def worked_example(path: Path) -> dict[str, str]:
    """Names and values of the document's example, made by potl and compared with the other one."""

    def capture(step: int) -> _core.State:
        return _core.State.capture({"step": step, "w": tensor([1.5 * step], [1])})

    text = job_text(
        steps=1,
        epochs=1,
        batch_size=2,
        data={"count": 3, "root": "11" * 32},
        initial_state={"digest": capture(0).digest().hex(), "source": "seed"},
        learning_rates=[{"steps": 1, "rates": ["3fb999999999999a"]}],
        checkpoint_every=1,
        max_segment=1,
    )
    job = _core.Job.parse(text)
    recorder = _core.Recorder.create(str(path), job, key(), software="example")
    recorder.append_initial(capture(0))
    recorder.append_step(
        capture(1), step=1, epoch=0, sample_ids=job.sample_ids(1), loss=0.5, rates=[0.1],
        random_draws=2, flags=0, duration_ns=1000, checkpoint=True,
    )  # fmt: skip
    recorder.close()
    commitment = _core.commit_run(str(path), key())

    run = pure.Run.read(path)
    note = pure.parse_note(commitment)
    checkpoint = (path / "checkpoints" / "step-1.safetensors").read_bytes()
    tree, _, digest = pure.parse_checkpoint(checkpoint)
    assert run.records[2].state == digest  # type: ignore[union-attr]
    assert note.root == run.root()
    return {
        "job.json": text.decode(),
        "job id": pure.job_id(text).hex(),
        "key(7, order, 0)": pure.derive_key(7, "order", 0).hex(),
        "sample ids of step 1": str(pure.sample_ids(run.job, 1)),
        "ids digest": pure.digest_of_ids(pure.sample_ids(run.job, 1)).hex(),
        "content root of w": tree["w"].root.hex(),
        "state encoding": pure.encode_tree(tree).hex(),
        "state digest": digest.hex(),
        "checkpoint": checkpoint.hex(),
        "public key": key().public_key.raw.hex(),
        **{f"record {at}": payload.hex() for at, payload in enumerate(run.payloads)},
        "transcript.log": (path / "transcript.log").read_bytes().hex(),
        "root": run.root().hex(),
        "signed text": repr(note.text.decode()),
        "signature": base64.b64encode(note.signature).decode(),
    }


def test_the_example_of_the_document_is_what_is_computed(tmp_path: Path) -> None:
    block = re.search(r"```example\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    expected = "".join(
        f"{name}: {value}\n" for name, value in worked_example(tmp_path / "run").items()
    )
    # Long values are wrapped; a continuation is indented.
    assert re.sub(r"\n +", "", block.group(1)) == expected


def test_the_smallest_state_that_differs_has_another_digest() -> None:
    trees: list[object] = [None, 0, False, 0.0, -0.0, "", b"", [], (), {}, {"a": None}, {"a": 0}]
    digests = {_core.State.capture(tree).digest() for tree in [*trees, {0: 0}]}
    assert len(digests) == 13
    assert state_at(1).digest() == state_at(1).digest()
