# SPDX-License-Identifier: Apache-2.0
"""What this processor can run. torch does not ask before it obeys ATEN_CPU_CAPABILITY."""

import torch


def torch_instruction_sets() -> list[str]:
    """Values of ATEN_CPU_CAPABILITY under which torch's kernels run here."""
    known = ["default", "avx2", "avx512"]
    best = torch.backends.cpu.get_cpu_capability().lower()
    return known[: known.index(best) + 1] if best in known else known[:1]
