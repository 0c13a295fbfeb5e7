# SPDX-License-Identifier: Apache-2.0
"""Arithmetic whose bits are the same on every machine, around torch's operators."""
