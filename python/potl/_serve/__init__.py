# SPDX-License-Identifier: Apache-2.0
"""A run over HTTP, as its trainer serves it."""
