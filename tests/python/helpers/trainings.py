# SPDX-License-Identifier: Apache-2.0
"""Short trainings of the tasks of `tasks`, and their states."""

import tasks
import torch
from torch import nn

from potl import _core
from potl._job._session import Session


def run(session, first, last):
    return [session.run_step(step, batch) for step, _, batch in session.batches(first, last)]


def state_of(build, steps=1):
    with Session.open(build, seed=7) as session:
        run(session, 1, steps)
        return session.capture()


def untied():
    built = tasks.tied()
    built.model.out.weight = nn.Parameter(built.model.out.weight.detach().clone())
    return tasks.task(built.model, torch.optim.Adam(built.model.parameters(), lr=1e-2))


def change(state, edit):
    """The state with another tree."""
    tree = state.tree()

    def rebuilt(value):
        if isinstance(value, _core.TensorView):
            data = torch.frombuffer(bytearray(value.data), dtype=torch.uint8)
            keep.append(data)
            return _core.Tensor(
                value.dtype, value.shape, value.memory_format, data.data_ptr(), len(data), data
            )
        if isinstance(value, dict):
            return {key: rebuilt(item) for key, item in value.items()}
        return type(value)(map(rebuilt, value)) if isinstance(value, (list, tuple)) else value

    keep = []
    copy = rebuilt(tree)
    edit(copy)
    return _core.State.capture(copy)
