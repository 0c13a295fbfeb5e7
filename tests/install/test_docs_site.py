# SPDX-License-Identifier: Apache-2.0
"""The documentation site: `make docs` builds it, and its pages fetch nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the generator needs Python 3.11")
def test_the_site_builds_without_a_warning_and_fetches_nothing() -> None:
    done = subprocess.run([ROOT / "scripts/docs"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    pages = list((ROOT / "build/site").rglob("*.html"))
    assert len(pages) > 50
    fetched = re.compile(r"<(?:script|img|iframe|link(?! rel=.canonical))[^>]*https?://[^>]*>")
    assert [
        found[0] for page in pages for found in [fetched.search(page.read_text())] if found
    ] == []
