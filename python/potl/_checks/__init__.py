# SPDX-License-Identifier: Apache-2.0
"""What a verifier looks at, and how strong the evidence must be."""
