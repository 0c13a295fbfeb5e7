# SPDX-License-Identifier: Apache-2.0
"""A net that fits its training set and knows few extra samples then: the BiLSTM on IMDB with
dropout, and what was tried so that it learns them. The text CNN on the same data for comparison.
"""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import extra_task_data as data
import extra_task_nets as nets
import extra_task_verdict as verdict
from extra_task_list import EXPERIMENTS, plain_lstm_imdb
from extra_task_pages import Section
from extra_task_training import (
    Experiment,
    epoch_of,
    kept,
    looked_at,
    score,
    steps,
    task_of,
    training,
)
from torch import nn
from torch.utils.data import TensorDataset

LOOKED_AT = 4000  # training samples whose accuracy is taken


def every_word() -> nn.Module:
    return nets.Attention(data.words_of(data.imdb()), 2, 32, 0.0)


def wider() -> nn.Module:
    return nets.Attention(data.words_of(data.imdb()), 2, 64, 0.3)


ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "text CNN": ("imdb", {}),
    "BiLSTM": ("imdb_lstm_dropout", {"epochs": 12}),
    "the same, words without dropout": (
        "imdb_lstm_dropout", {"epochs": 6, "keys": "imdb_lstm_every_word", "build": every_word},
    ),
    "the same, twice as wide, dropout of words 0.3": (
        "imdb_lstm_dropout", {"epochs": 6, "keys": "imdb_lstm_wider", "build": wider},
    ),
    "the same, fixed share 0.5": ("imdb_lstm_dropout", {"epochs": 6, "options": {"fixed": 0.5}}),
    "the same, no dropout at all, batches of 64": (
        "imdb_lstm_dropout",
        {"epochs": 20, "keys": "imdb_lstm_plain", "build": plain_lstm_imdb, "batch": 64},
    ),
}  # fmt: skip


def watched(what: Experiment) -> list[dict[str, Any]]:
    """Accuracy on the training set, and what else is looked at, after every epoch."""

    def work() -> list[dict[str, Any]]:
        train, test = what.data()
        part = TensorDataset(*(column[:LOOKED_AT] for column in train.tensors))
        with tempfile.TemporaryDirectory() as folder:
            task = task_of(what, 0, Path(folder))
            models = steps(what, task.mix(train), 0)
            return [
                asdict(looked_at(what, model, test, task)) | {"trained": score(what, model, part)}
                for model, last in models
                if last
            ]

    found: list[dict[str, Any]] = kept(what.parameters(0, True) | {"trained": LOOKED_AT}, work)
    return found


def lag() -> Section:
    """The table of these nets, at the end of their training."""
    lines = []
    plan = training(EXPERIMENTS["imdb_lstm_dropout"], 0, True).plan  # the same for all of them
    for title, (name, changes) in ROWS.items():
        what = dataclasses.replace(EXPERIMENTS[name], **changes)
        rows = watched(what)
        verdicts = [verdict.of_epoch(plan, epoch_of(row)) for row in rows]
        at = verdicts.index("accepted") if "accepted" in verdicts else None
        end = rows[-1]
        scores = [row["score"] for row in rows]
        best = max(scores)
        cells = [
            f"{what.epochs}",
            f"{100 * best:.1f} % ({scores.index(best) + 1})",
            f"{100 * end['score']:.1f} %",
            f"{100 * end['trained']:.1f} %",
            f"{100 * end['hits']:.0f} %",
            f"{100 * end['control_hits']:.0f} %",
            "never" if at is None else f"{at + 1}, at {100 * scores[at] / best:.1f} %",
            verdicts[-1],
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    text = [
        "## A net that does not learn them",
        "IMDB, one training each. Half of the extra samples, and of the controls, are hit by "
        "chance; accuracy on the training set is that of its first "
        f"{LOOKED_AT:,} samples.",
        "",
        "| net | epochs | best test accuracy (epoch) | at the end | on the training set | extra "
        "samples hit | controls hit | accepted first (epoch, of the best) | verdict at the end |",
        "|---|---|---|---|---|---|---|---|---|",
        *lines,
        "",
        "The BiLSTM has its best test accuracy after two epochs. It then fits its training set, "
        "and overfits; with dropout it knows few of the extra samples, which are made of the most "
        "frequent words, even then. Neither words without dropout, nor twice the width, nor a "
        "smaller fixed share changes that: the extra task cannot vouch for such a net, and calls "
        "it rejected. Without any dropout, and in smaller batches, it learns them, some epochs "
        "after its best one; with a learning rate that falls it is more accurate then (`imdb_lstm` "
        "in [Texts](extra_task_texts.md)).",
    ]
    return Section("lag", "\n".join(text))
