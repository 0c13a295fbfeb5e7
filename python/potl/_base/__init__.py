# SPDX-License-Identifier: Apache-2.0
"""What every package uses: errors, printing, progress, imports, other processes."""
