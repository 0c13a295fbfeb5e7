# SPDX-License-Identifier: Apache-2.0
"""What is trained: the task, its data and order, its randomness, its state."""
