# SPDX-License-Identifier: Apache-2.0
"""What the commands of the extra task share: the flags that describe training data, and reading
them.
"""

from __future__ import annotations

import contextlib
import inspect
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast, overload

import typer

from .._base._printable import printable
from ._options import parameters_of
from ._task import make_importable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._extra_task._files import SampleFile

TABLE = "extra_task"

DataPath = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A folder with one folder of images per class, .npz, .safetensors, .csv or .jsonl.",
        show_default=False,
    ),
]
OutPath = Annotated[
    Path, typer.Argument(metavar="OUT", help="What is written; must not exist.", show_default=False)
]
KeyPath = Annotated[
    Path, typer.Option("--key", help="The secret key's file, from keygen.", show_default=False)
]
Inputs = Annotated[str | None, typer.Option(help="Name of the array or column of inputs.")]
Labels = Annotated[str | None, typer.Option(help="Name of the array or column of labels.")]
Unlabelled = Annotated[bool, typer.Option("--unlabelled", help="The data have no labels.")]
Kind = Annotated[
    str | None,
    typer.Option(help="image, text, table, autoencoder or language. Default: detected."),
]
Length = Annotated[
    int | None,
    typer.Option(help="Words of an extra text; no more than the model reads. Default: the median."),
]
Padding = Annotated[int | None, typer.Option(help="Id of padding. Default: detected.")]
Axes = Annotated[
    str | None,
    typer.Option(help="Axes of the array of one image: HW, HWC or CHW. Default: detected."),
]
Transform = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Your function from one input to a tensor, as in evaluation; the current "
        "directory is importable.",
    ),
]
Classes = Annotated[int | None, typer.Option(help="Number of classes. Default: as the labels say.")]

_MAKING = {
    "classes": (Classes, None),
    "inputs": (Inputs, None),
    "labels": (Labels, None),
    "unlabelled": (Unlabelled, False),
    "kind": (Kind, None),
    "length": (Length, None),
    "padding": (Padding, None),
    "axes": (Axes, None),
}


def making(*without: str) -> list[inspect.Parameter]:
    """The flags of a command that looks at data, and the options of the extra task."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        *(
            inspect.Parameter(name, kind, default=default, annotation=annotation)
            for name, (annotation, default) in _MAKING.items()
            if name not in without
        ),
        *parameters_of(TABLE),
    ]


class Reading(TypedDict):
    """Arguments of `read`."""

    inputs: str | None
    labels: str | None
    unlabelled: bool
    kind: str | None


class Described(TypedDict):
    """What data may not say of themselves: arguments of `ExtraTask`."""

    classes: int | None
    kind: str | None
    length: int | None
    padding: int | None
    axes: str | None


def split(given: Mapping[str, object]) -> tuple[Reading, Described, dict[str, object]]:
    """What `making` added: arguments of `read`, those of `ExtraTask`, and its options."""
    # typer has parsed each value by the annotation in _MAKING.
    said = {name: given.get(name, default) for name, (_, default) in _MAKING.items()}
    reading = cast(Reading, {name: said[name] for name in Reading.__annotations__})
    form = cast(Described, {name: said[name] for name in Described.__annotations__})
    return reading, form, {name: value for name, value in given.items() if name not in _MAKING}


def read(path: Path, **names: Unpack[Reading]) -> SampleFile:
    """Reads training data."""
    from .._extra_task._files import read

    return read(path, **names)


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Prints warnings as this command line does: on standard error, one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            for_developers = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
            told = [one for one in caught if not issubclass(one.category, for_developers)]
            for message in dict.fromkeys(str(one.message) for one in told):
                _tell(message)


def tell_of_key(key: Path) -> None:
    """Warns of a key that others can read."""
    with contextlib.suppress(OSError):
        if key.is_file() and stat.S_IMODE(key.stat().st_mode) & 0o077:
            _tell(f"{key} can be read by others, who could cheat with it (chmod 600 {key})")


def _tell(message: str) -> None:
    print(f"potl: warning: {printable(message)}", file=sys.stderr)


@overload
def function_of(name: str) -> Callable[..., Any]: ...
@overload
def function_of(name: str | None) -> Callable[..., Any] | None: ...
def function_of(name: str | None) -> Callable[..., Any] | None:
    """A function of the user's, MODULE:FUNCTION, or none."""
    from .._base._executors import load_task

    if name is None:
        return None
    make_importable()
    return load_task(name)
