# SPDX-License-Identifier: Apache-2.0
"""Imports and first calls that each server would wait for: made once, before servers are forked."""

import tempfile
from pathlib import Path

import arguing
import torch

import potl

torch.set_num_threads(1)  # a process that is forked has none of the others
with tempfile.TemporaryDirectory() as folder:
    job = potl.Job.create(arguing.build, seed=3, checkpoint_every=2, arithmetic="ord32")
    run = potl.record(arguing.build, Path(folder) / "run", job=job)
    run.commit()
    party = potl.Party(run, job=job, task=arguing.build)
    party._story(1).content("operator/2/0")
    party.close()
