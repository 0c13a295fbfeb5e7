# SPDX-License-Identifier: Apache-2.0
"""Secret samples in the data that a converged model has learned."""
