# SPDX-License-Identifier: Apache-2.0
"""Where two trainings part: the first step, the operators of a step, one element of a result."""
