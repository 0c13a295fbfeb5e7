# SPDX-License-Identifier: Apache-2.0
"""What both sides agree on, and the session that trains by it."""
