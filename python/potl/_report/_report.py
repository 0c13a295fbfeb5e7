# SPDX-License-Identifier: Apache-2.0
"""Reports for people and for other programs. They show what was concluded; none of them concludes
anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["render_demo_html", "render_html", "render_junit", "render_terminal"]


def render_html(report: Mapping[str, object]) -> str:
    """One self-contained HTML page.

    Args:
        report: The document of `Report.document` (schema: docs/format/report.schema.json).
    """
    from ._html import render_report

    return render_report(report)


def render_junit(report: Mapping[str, object]) -> str:
    """JUnit XML: one test case per finding; a rejecting finding is a failure, one that could not be
    judged an error."""
    from ._junit import render

    return render(report)


def render_terminal(report: Mapping[str, object], console: Console) -> None:
    """Prints the report for people."""
    from ._terminal import render

    render(report, console)


def render_demo_html(
    rows: Sequence[Mapping[str, object]],
    reports: Sequence[Mapping[str, object] | str | bytes | None],
) -> str:
    """One page over several verifications: a table, and each report below it.

    Args:
        rows: One per verification: who, how, verdict, decided_by, reason, cost (share of training),
            expected_rule, as_expected.
        reports: The document of each row, or its JSON text, or None where there was nothing to
            verify.

    Raises:
        MalformedError: A text is not a report.
    """
    from ._document import parse
    from ._html import render_demo

    documents = [parse(one) if isinstance(one, (str, bytes)) else one for one in reports]
    return render_demo(rows, documents)
