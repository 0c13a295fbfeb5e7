# SPDX-License-Identifier: Apache-2.0
"""Runs that lie elsewhere, as a verifier reads them."""
