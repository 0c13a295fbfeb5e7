# SPDX-License-Identifier: Apache-2.0
"""The trainer's side: recording, resuming, committing."""
