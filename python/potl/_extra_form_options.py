# SPDX-License-Identifier: Apache-2.0
"""Options that say what cannot be found out about data: they are refused where they say nothing, or
something else than when the data were mixed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import UsageError
from ._extra_content import Content
from ._extra_images import Images
from ._extra_tables import Tables
from ._extra_texts import Texts

if TYPE_CHECKING:
    from ._extra_form import Form


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
                f"{name}= says nothing of these inputs: {_kind(content)}, held as {carrier}",
                "leave it out, or pass kind= where they were taken for something else",
            )


def require_mixed(form: Form, path: Path, kind: str | None, **options: Any) -> None:
    """Refuses options that are not what the data were mixed with.

    Args:
        form: As the file beside the key has it.
        path: Of the key.
        kind, options: As `ExtraTask` was given them: classes, length, padding, axes.

    Raises:
        UsageError: One differs.
    """
    content = form.content
    own = {name: getattr(content, name, None) for name in ("padding", "axes")}
    own["classes"] = form.classes
    # The text of a pair holds the target of its last word too.
    own["length"] = content.length - form.pairs if isinstance(content, Texts) else None
    kinds = [_kind(content)]
    if not form.classes:
        kinds.append("autoencoder" if form.objective == "reconstruction" else "language")
    if kind is not None and kind not in kinds:
        raise _differs("kind", kind, kinds[-1], path)
    for name, value in options.items():
        if value is not None and value != own[name]:
            raise _differs(name, value, own[name], path)


def _differs(name: str, value: Any, own: Any, path: Path) -> UsageError:
    return UsageError(
        f"{name} is {value!r}, but the data were mixed with {own!r}",
        f"leave it out: the file beside {path} knows",
    )


def _kind(content: Content) -> str:
    kinds = {"image": Images, "text": Texts, "table": Tables}
    return next(name for name, kind in kinds.items() if isinstance(content, kind))
