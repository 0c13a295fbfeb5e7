# SPDX-License-Identifier: Apache-2.0
"""A job with its code and data in one file, which only its trainer can open."""
