# SPDX-License-Identifier: Apache-2.0
"""Images, texts and rows of tables, by name."""

from __future__ import annotations

from typing import Any

from .._base._errors import UsageError
from ._content import Content
from ._images import Images
from ._tables import Tables
from ._texts import Texts

_KINDS: dict[str, Any] = {"image": Images, "text": Texts, "table": Tables}


def content_of(plain: dict[str, Any]) -> Content:
    """The content that `plain` describes."""
    fields = dict(plain)
    content: Content = _KINDS[fields.pop("kind")](**fields)
    return content


def kind_of(content: Content) -> str:
    """ "image", "text" or "table"."""
    return next(name for name, kind in _KINDS.items() if isinstance(content, kind))


def require_useful(content: Content, **options: Any) -> None:
    """Refuses length=, padding= and axes= for inputs that have none.

    Raises:
        UsageError: One of them is given, and says nothing.
    """
    carrier = getattr(content, "carrier", "")
    useful = {
        "length": isinstance(content, Texts),
        "padding": isinstance(content, Texts) and carrier != "str",
        "axes": isinstance(content, Images) and carrier != "pil",
    }
    for name, value in options.items():
        if value is not None and not useful[name]:
            raise UsageError(
                f"{name}= says nothing of these inputs: {kind_of(content)}, held as {carrier}",
                "leave it out, or pass kind= where they were taken for something else",
            )
