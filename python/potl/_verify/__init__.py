# SPDX-License-Identifier: Apache-2.0
"""The verifier's side: challenges, the requests of checks, verdicts."""
