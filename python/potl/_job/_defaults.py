# SPDX-License-Identifier: Apache-2.0
"""What a job says unless it is told otherwise, for `Job.create` and the command line."""

TOLERANCE_CAP = 0.1
"""Largest tolerance of a replay, as a share of the segment's update."""

MAX_RESUMES = 16
"""How often recording may be resumed after a crash."""
