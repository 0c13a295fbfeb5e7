# SPDX-License-Identifier: Apache-2.0
"""Reports: terminal, HTML, JUnit."""
