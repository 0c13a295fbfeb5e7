# SPDX-License-Identifier: Apache-2.0
"""The processes of a data-parallel training, and what they tell each other."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import torch

from .._arithmetic import _arithmetic
from .._base._errors import StorageError, UsageError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from typing_extensions import Self

T = TypeVar("T")

_LINE = 1000


class Ranks:
    """A process group of torch's, for a block. Every method is called by all of its processes.

    Nothing of potl holds the group after the block. So `destroy_process_group()` ends its threads:
    one that were late, when the interpreter ends, would abort the process (pytorch issue 190489).

    Args:
        group: Of two or more processes, or one; `torch.distributed.group.WORLD` has all.

    Attributes:
        rank: Of this process in the group, from 0.
        size: Processes of the group.

    Raises:
        UsageError: This process is not one of them.
    """

    def __init__(self, group: ProcessGroup) -> None:
        import torch.distributed as dist

        self._group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        if self.rank < 0:
            raise UsageError(
                "this process is not in the group", "call record in the group's processes alone"
            )
        # Devices that the group has a backend for: what is no gradient travels through the CPU.
        devices = [device.type for device in group._device_types]
        self._place = torch.device("cpu" if "cpu" in devices else devices[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # Sessions that hold these ranks have cycles of references, and torch.fx, if it is imported
        # meanwhile, keeps the frames of all who called it, with their arguments.
        del self._group
        gc.collect()

    def broadcast(self, data: bytes | None) -> bytes:
        """The bytes of rank 0, in every process."""
        import torch.distributed as dist

        def work() -> bytes:
            length = torch.tensor([0 if data is None else len(data)], device=self._place)
            dist.broadcast(length, group_src=0, group=self._group)
            if not length:
                return b""
            sent = torch.empty(int(length), dtype=torch.uint8)
            if data:
                sent = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            sent = sent.to(self._place)
            dist.broadcast(sent, group_src=0, group=self._group)
            return sent.cpu().numpy().tobytes()

        return self._together(work)

    def rows(self, row: list[float]) -> list[list[float]]:
        """The numbers of each process, by rank; all have as many."""
        mine = torch.tensor(row, dtype=torch.float64, device=self._place)
        found = torch.empty(self.size, len(row), dtype=torch.float64, device=self._place)
        self.gather(mine, found.view(-1))
        return found.tolist()

    def lists(self, numbers: list[float], lengths: list[int]) -> list[list[float]]:
        """The numbers of each process, by rank, of which each has as many as its length says."""
        most = max(lengths)
        if most == 0:
            return [[] for _ in lengths]
        rows = self.rows([*numbers, *([0.0] * (most - len(numbers)))])
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    def texts(self, text: str) -> list[str]:
        """The text of each process, by rank, or how it begins."""
        line = text.encode()[:_LINE].ljust(_LINE, b"\0")
        mine = torch.frombuffer(bytearray(line), dtype=torch.uint8).to(self._place)
        found = torch.empty(self.size, _LINE, dtype=torch.uint8, device=self._place)
        self.gather(mine, found.view(-1))
        lines = [bytes(one) for one in found.tolist()]
        return [one.rstrip(b"\0").decode(errors="replace") for one in lines]

    def gather(self, share: torch.Tensor, into: torch.Tensor) -> None:
        """Puts the flat tensors of all processes one after the other; all are as long."""
        import torch.distributed as dist

        # As bytes, here and below: backends do not know every type of gradients.
        places = list(into.view(torch.uint8).chunk(self.size))
        self._together(lambda: dist.all_gather(places, share.view(torch.uint8), group=self._group))

    def exchange(self, parts: torch.Tensor, into: torch.Tensor) -> None:
        """Sends the k-th of `size` equal parts of a flat tensor to rank k, and puts what the
        processes send to this one there, one after the other.
        """
        import torch.distributed as dist

        received, sent = into.view(torch.uint8), parts.view(torch.uint8)
        self._together(lambda: dist.all_to_all_single(received, sent, group=self._group))

    def _together(self, work: Callable[[], T]) -> T:
        with _arithmetic.outside(), _lost(), torch.no_grad():
            return work()


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    """What torch's backends raise where a process is gone, or where they have waited too long."""
    try:
        yield
    except RuntimeError as error:
        # Before what went wrong, gloo puts a line of its own source, and after it good wishes.
        why = re.sub(r"^\[\S+:\d+\] ", "", str(error).partition("\n")[0]).split(". ")[0]
        raise StorageError(
            f"a process of the group is gone or late: {why}",
            "see what it printed, and start all of them again: the run goes on where it was kept. "
            "For one that is late, init_process_group(timeout=) sets a longer limit",
        ) from error
