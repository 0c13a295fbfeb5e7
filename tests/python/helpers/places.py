# SPDX-License-Identifier: Apache-2.0
"""Where the tests find this repository, and what they share."""

from pathlib import Path

HELPERS = Path(__file__).resolve().parent
"""On sys.path of the tests; on PYTHONPATH of the processes that need it."""
ROOT = HELPERS.parents[2]
