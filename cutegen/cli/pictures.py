"""The formats of `cutegen show`, and the output of pictures to a file or to stdout."""

import sys
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, TypeAlias

import typer

from cutegen.cli.output import JSON_SUFFIX, TEXT_SUFFIX, encoded, require_folder, suffix_of, write_file
from cutegen.errors import RequestError
from cutegen.show.canvas import Picture, framed, to_latex, to_png, to_svg


class Format(StrEnum):
    """Output format."""

    TEXT = "text"
    SVG = "svg"
    LATEX = "latex"
    PNG = "png"
    HTML = "html"


FormatOption: TypeAlias = Annotated[
    Format | None,
    typer.Option("--format", help="Output format; default: from FILE's suffix, else text.", show_default=False),
]
SUFFIXES: Mapping[str, Format] = MappingProxyType(
    {".svg": Format.SVG, ".tex": Format.LATEX, ".png": Format.PNG, ".html": Format.HTML}
)


def choose_format(given: Format | None, out: Path | None, known: Collection[Format] = tuple(Format)) -> Format:
    """Return the requested format, else that of the file's suffix, else text; JSON counts as text here.

    Raises RequestError if the file has another format's suffix or that of none in `known`, OutsideError without its
    folder.
    """
    require_folder("--out", out)
    suffix = suffix_of(out, (TEXT_SUFFIX, JSON_SUFFIX, *(each for each in SUFFIXES if SUFFIXES[each] in known)))
    named = SUFFIXES.get(suffix, Format.TEXT) if suffix else given or Format.TEXT
    if given is not None and given is not named:
        raise RequestError(f"--format: found {given} together with --out {out}; expected {named}, or another suffix")
    return named


def deliver(picture: Picture, title: str, format_: Format, out: Path | None) -> None:
    """Write a picture to `out` or to stdout. Raises RequestError for a binary format on a terminal."""
    if format_ is Format.PNG and out is None and sys.stdout.isatty():
        raise RequestError("--format png: found a terminal; expected --out FILE, or stdout in a pipe")
    _leave(_encoded(framed(picture), title, format_), out)


def deliver_text(text: str, out: Path | None) -> None:
    """Write a page or a finished SVG to `out` or to stdout. Raises OutsideError if the file cannot be written."""
    _leave(encoded(text), out)


def _leave(content: bytes, out: Path | None) -> None:
    if out is not None:
        write_file("--out", out, content)
    else:
        sys.stdout.buffer.write(content)


def _encoded(picture: Picture, title: str, format_: Format) -> bytes:
    if format_ is Format.PNG:
        return to_png(picture, title)
    text = to_svg(picture, title) if format_ is Format.SVG else to_latex(picture, title)
    return encoded(text)
