"""From a name or a path to the text of a spec file; what is in the way is a SpecError that says what was looked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from cutegen.errors import SpecError
from cutegen.spec.model import GemmSpec
from cutegen.spec.parse import parse_spec
from cutegen.support.literals import literal, nearest
from cutegen.support.resources import layouts_dir

SpecLike: TypeAlias = "GemmSpec | str | os.PathLike[str]"
"""A spec, the name of a shipped one, or a path."""

_SUFFIX = ".toml"
_LARGEST_BYTES = 1 << 20
_OTHER_FILES = {
    ".ptx": "PTX is for `cutegen run FILE.ptx` and `cutegen check FILE.ptx`",
    ".py": "a kernel's file is for `cutegen build`, `run`, `bench`, `report` and `emit`",
}
"""What takes files that are no specs."""


def load_spec(name_or_path: str | os.PathLike[str]) -> GemmSpec:
    """The spec in a file, or the shipped spec of that name. Raises SpecError.

    A `/` or the ending `.toml` makes a text a path.

    >>> load_spec("sm80_hgemm_tn").tile.cta
    (128, 128, 64)
    """
    text = os.fspath(name_or_path)
    bare = isinstance(name_or_path, str) and Path(text).name == text and not text.endswith(_SUFFIX)
    if fix := _OTHER_FILES.get(suffix := Path(text).suffix):
        found, expected = f"a file that ends in {suffix}", f"a spec, which ends in {_SUFFIX}"
        raise SpecError(file=text, key="", found=found, expected=expected, fix=fix)
    path = spec_path(text) if bare else Path(text)
    return parse_spec(_read(path), file=str(path), name=path.stem)


def as_spec(spec: SpecLike) -> GemmSpec:
    """A spec as it is; a name or a path as the spec that it names. Raises SpecError."""
    return spec if isinstance(spec, GemmSpec) else load_spec(spec)


def shipped_specs() -> tuple[str, ...]:
    """The names of the specs that ship with cutegen, sorted."""
    return tuple(sorted(path.stem for path in layouts_dir().glob(f"*{_SUFFIX}")))


def spec_path(name: str) -> Path:
    """The file of the shipped spec called `name`. Raises SpecError that says the nearest, and how to see all."""
    names = shipped_specs()
    if name in names:
        return layouts_dir() / (name + _SUFFIX)
    if name and os.path.isfile(name + _SUFFIX):
        expected = f"{name}{_SUFFIX}, with the ending: a file of that name lies here"
    elif close := nearest(name, names):
        expected = f"{close}, the nearest"
    else:
        expected = "a shipped spec's name, or a path, which has a / in it or ends in .toml"
    found = f"{literal(name)}, which no shipped spec is called"
    raise SpecError(file="", key="", found=found, expected=expected, fix=f"`cutegen list` shows all {len(names)}")


def _read(path: Path) -> str:
    """The text of a file; TOML is UTF-8 by definition, with or without a byte order mark."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if len(content) > _LARGEST_BYTES:
        found = f"more than {_LARGEST_BYTES} bytes"
        raise SpecError(file=str(path), key="", found=found, expected="a spec, which is a small TOML file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte 0x{content[error.start]:02x} at offset {error.start}, which is not UTF-8"
        raise SpecError(file=str(path), key="", found=found, expected="a TOML file", fix="") from error


def _unreadable(path: Path, error: OSError | ValueError) -> SpecError:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            found, fix = "no such file", _missing_file_fix(path)
        case IsADirectoryError():
            inside = sorted(path.glob(f"*{_SUFFIX}"))
            found, fix = "a directory", f"in it lies {inside[0].name}" if inside else ""
        case OSError():
            found, fix = (error.strerror or str(error)).lower(), ""
        case _:
            found, fix = f"a path that cannot be: {error}", ""
    return SpecError(file=str(path), key="", found=found, expected="a readable TOML file", fix=fix)


def _missing_file_fix(path: Path) -> str:
    if path.parent.is_dir():
        if close := nearest(path.name, [sibling.name for sibling in path.parent.glob(f"*{_SUFFIX}")]):
            return f"the nearest file beside it is {path.with_name(close)}"
        close = nearest(path.stem, shipped_specs())
        return f"the nearest shipped spec is {close}" if close else "`cutegen list` shows those that ship"
    return f"the folder {path.parent} does not exist"
