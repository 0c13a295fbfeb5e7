# SPDX-License-Identifier: Apache-2.0
"""What docs/guide/porting.md says of transformers: its models, optimizer, schedule and sampler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

import potl
from potl._job._session import Session

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

ROWS = [torch.arange(n % 5 + 3) for n in range(32)]


def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    labels = pad_sequence(rows, batch_first=True, padding_value=-100)
    return {
        "input_ids": labels.clamp_min(0),
        "attention_mask": (labels >= 0).long(),
        "labels": labels,
    }


def model() -> Any:
    config = transformers.GPT2Config(
        vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0.0
    return transformers.GPT2LMHeadModel(config)


class OfSamples(potl.Task):
    def compute_loss(self, batch: Any, reduction: str = "mean") -> Any:
        with self.autocast_context():
            return self.model(**batch).loss


class OfTokens(potl.Task):
    def step(self, batch: Any) -> torch.Tensor:
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        count, total = (batch["labels"][:, 1:] != -100).sum(), torch.zeros(())
        for part, _ in self.micro_batches(batch):
            with self.autocast_context():
                loss = self.model(**part, num_items_in_batch=count).loss
            loss.backward()
            total += loss.detach()
        self.update(total)
        return total


def build(kind: type[potl.Task] = OfSamples, accumulate: int = 2, **options: Any) -> potl.Task:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    return kind(
        net,
        options.pop("optimizer", optimizer),
        ROWS,
        batch_size=8,
        epochs=2,
        accumulate=accumulate,
        collate_fn=collate,
        **options,
    )


def with_trainer(folder: Path) -> potl.Task:
    net = model()
    arguments = transformers.TrainingArguments(
        str(folder), weight_decay=0.1, warmup_steps=2, use_cpu=True, report_to=[]
    )
    trainer = transformers.Trainer(model=net, args=arguments)
    optimizer = trainer.create_optimizer()
    sampler = transformers.trainer_pt_utils.LengthGroupedSampler(8, lengths=[*map(len, ROWS)])
    return OfSamples(
        net,
        optimizer,
        ROWS,
        batch_size=8,
        epochs=2,
        collate_fn=collate,
        scheduler=trainer.create_scheduler(8, optimizer),
        sampler=sampler,
        grad_clip=1.0,
        autocast=torch.bfloat16,
    )


def test_a_trainer_gives_its_optimizer_schedule_and_sampler(tmp_path: Path) -> None:
    def made() -> potl.Task:
        return with_trainer(tmp_path)

    (optimizer,) = made().optimizers
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    job = potl.Job.create(made, seed=3, checkpoint_every=2)
    assert job.core.arithmetic == "ord32"
    run = potl.record(made, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=made, ledger=None)
    assert report.verdict == "accepted", report.sentence


@pytest.mark.parametrize("kind", [OfSamples, OfTokens])
def test_a_step_weighs_micro_batches_by_samples_or_by_tokens(kind: type[potl.Task]) -> None:
    losses = []
    for parts in (1, 2):
        with Session.open(lambda n=parts: build(kind, n), seed=1) as session:
            losses.append(session.run_step(1, session.sample_ids(1)).loss)
    assert (abs(losses[0] - losses[1]) < 1e-5) == (kind is OfTokens), losses
