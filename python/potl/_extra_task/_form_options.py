# SPDX-License-Identifier: Apache-2.0
"""Options that are not those the data were mixed with are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._base._errors import UsageError
from ._form import Form
from ._kinds import kind_of
from ._texts import Texts


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
    kinds = [kind_of(content)]
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
