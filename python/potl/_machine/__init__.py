# SPDX-License-Identifier: Apache-2.0
"""Whether this machine is fit: `potl doctor` and `potl selftest`."""
