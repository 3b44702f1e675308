"""Loads a spec file by name or path; failures are a SpecError that says what was expected."""

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
_BUILT_FOLDER = "a built folder is for `cutegen run`, `bench`, `report` and `emit`"
_OTHER_FILES = {
    ".ptx": "PTX is for `cutegen run FILE.ptx` and `cutegen check FILE.ptx`",
    ".py": "a kernel file is for `cutegen build`, `run`, `bench`, `report` and `emit`",
}
"""Commands for files that are not specs."""


def load_spec(name_or_path: str | os.PathLike[str]) -> GemmSpec:
    """Return the spec in a file, or the shipped spec of that name. Raises SpecError.

    A string with a `/` or the suffix `.toml` is a path.

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
    """Return a spec unchanged; for a name or a path, the spec that it names. Raises SpecError."""
    return spec if isinstance(spec, GemmSpec) else load_spec(spec)


def shipped_specs() -> tuple[str, ...]:
    """Return the names of the specs that ship with cutegen, sorted."""
    return tuple(sorted(path.stem for path in layouts_dir().glob(f"*{_SUFFIX}")))


def spec_path(name: str) -> Path:
    """Return the file of the shipped spec `name`. Raises SpecError that names the nearest, and how to list all."""
    names = shipped_specs()
    if name in names:
        return layouts_dir() / (name + _SUFFIX)
    if name and os.path.isfile(name + _SUFFIX):
        expected = f"{name}{_SUFFIX}, with the suffix: a file of that name exists here"
    elif close := nearest(name, names):
        expected = f"{close}, the nearest"
    else:
        expected = "a shipped spec's name, or a path, which has a / in it or ends in .toml"
    found = f"{literal(name)}, which is not a shipped spec"
    raise SpecError(file="", key="", found=found, expected=expected, fix=f"`cutegen list` shows all {len(names)}")


def _read(path: Path) -> str:
    """Return the text of a file; TOML is UTF-8 by definition, with or without a byte order mark."""
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
            built = (path / "kernel.py").is_file()
            found = "a directory"
            fix = f"it contains {inside[0].name}" if inside else _BUILT_FOLDER if built else ""
        case OSError():
            found, fix = (error.strerror or str(error)).lower(), ""
        case _:
            found, fix = f"an invalid path: {error}", ""
    return SpecError(file=str(path), key="", found=found, expected="a readable TOML file", fix=fix)


def _missing_file_fix(path: Path) -> str:
    if path.parent.is_dir():
        if close := nearest(path.name, [sibling.name for sibling in path.parent.glob(f"*{_SUFFIX}")]):
            return f"the nearest file name there is {path.with_name(close)}"
        close = nearest(path.stem, shipped_specs())
        return f"the nearest shipped spec is {close}" if close else "`cutegen list` shows the shipped specs"
    return f"the folder {path.parent} does not exist"
