"""A spec's file: found by name or path, parsed from TOML, and written as the table of its given keys."""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

from cutegen.errors import SpecError
from cutegen.spec.model import GemmSpec
from cutegen.spec.schema import Key, Part, keys_of, known_keys
from cutegen.support.resources import layouts_dir
from cutegen.support.typed_json import is_line
from cutegen.support.words import literal, nearest, quoted_key

# Parses a TOML text to a `GemmSpec`. Checks keys here (unknown, missing, misplaced); the spec itself checks values.


DEEPEST_NESTING = 16  # a spec has four levels of tables; deeper ones would break messages
_A_SPEC = "a spec: family, and under [problem] the operands a, b and c"
_AS_TOML = '{"problem": {"a": {"dtype": "f16"}}} is written problem.a.dtype = "f16"'
EVIDENCE = "tuned"
"""The table that a record of `cutegen tune` has in addition to its spec; specs ignore it."""
REMOVED = {"schedule.k_tiles": "k-tiles in turn were slower wherever they were timed"}
"""Keys that specs had, and why they no longer have them."""

_KEYS_BY_DOTTED_NAME = dict(known_keys(GemmSpec))


def parse_spec(toml: str, *, file: str = "", name: str = "") -> GemmSpec:
    r"""Return the spec of a TOML text; `file` and `name` are the origin of the text. Raises SpecError.

    >>> parse_spec("family = 'sm80'\nstage = 3")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    cutegen.errors.SpecError: stage: found an unknown key; expected family, kind, description, problem, tile, mma, ...
    """
    table = _table(toml, file)
    if isinstance(table.get(EVIDENCE), dict):
        del table[EVIDENCE]
    if not table:
        found = "no key in it" if toml.strip() else "an empty file"
        raise SpecError(
            file=file, key="", found=found, expected=_A_SPEC, fix="the shipped spec sm80_hgemm_tn is a short one"
        )
    return spec_of_table(table, file=file, name=name)


def spec_of_table(table: Mapping[str, Any], *, file: str = "", name: str = "") -> GemmSpec:
    """Return the spec of a TOML table; `file` and `name` as in `parse_spec`. Raises SpecError.

    >>> spec_of_table({"problem": {x: {"dtype": "f16", "major": "k" if x != "c" else "n"} for x in "abc"}}).tile.cta
    """
    return GemmSpec(**_fields(GemmSpec, table, "", file), file=file, name=name)


def _table(toml: str, file: str) -> dict[str, Any]:
    try:
        table = tomllib.loads(toml)
        if nesting(table) <= DEEPEST_NESTING:
            return table
        found, fix = f"tables or lists nested more than {DEEPEST_NESTING} deep", ""
    except RecursionError:
        found, fix = "tables or lists nested too deeply to read", ""
    except ValueError as error:  # TOMLDecodeError, and int() for a number of thousands of digits
        if toml.lstrip().startswith("{"):
            raise SpecError(file=file, key="", found="JSON", expected="TOML", fix=_AS_TOML) from error
        found, fix = f"a syntax error: {error}", _offending_line(toml, str(error))
    raise SpecError(file=file, key="", found=found, expected="TOML", fix=fix)


def nesting(value: object) -> int:
    """Return the nesting of tables and lists, without recursion: tomllib reads deeper than Python's limit.

    >>> nesting(3), nesting({"cta": [1, [2]]})
    (0, 3)
    """
    depth, level = 0, [value]
    while level := [x for x in level if isinstance(x, dict | list)]:
        depth += 1
        level = [item for x in level for item in (x.values() if isinstance(x, dict) else x)]
    return depth


def _offending_line(toml: str, message: str) -> str:
    """Return the line of a message that ends like tomllib's, "(at line 3, column 5)"; "" at the end of the text."""
    position = re.search(r"at line (\d+), column \d+", message)
    return f"the line reads {literal(toml.split(chr(10))[int(position[1]) - 1].strip())}" if position else ""


def _fields(part: type[Part], table: Mapping[str, Any], prefix: str, file: str) -> dict[str, Any]:
    """Return the keyword arguments of `part` in `table`."""
    keys = {key.name: key for key in keys_of(part)}
    for name in table:
        if name not in keys:
            raise _unknown_key(name, keys, prefix, file)
    for key in keys.values():
        if key.required and key.name not in table:
            raise _missing_key(key, prefix, file)
    return {name: _value(keys[name], value, prefix, file) for name, value in table.items()}


def _value(key: Key, value: Any, prefix: str, file: str) -> object:
    """Return a value for Python: a table becomes its part, a list a tuple. The spec checks whatever does not fit."""
    if value is True and key.switch:
        value = {}
    if key.part is not None and isinstance(value, dict):
        return key.part(**_fields(key.part, value, f"{prefix}{key.name}.", file))
    return _frozen(value)


def _frozen(value: Any) -> object:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _unknown_key(name: str, keys: Mapping[str, Key], prefix: str, file: str) -> SpecError:
    elsewhere = [dotted for dotted in _KEYS_BY_DOTTED_NAME if dotted.rpartition(".")[2] == name]
    close = nearest(name, keys)
    meant = [f"did you mean {prefix}{close}?"] if close else []
    fix = "; ".join(meant + [f"the key {name} exists as {dotted}" for dotted in elsewhere[:1]]) or "leave it out"
    if (why := REMOVED.get(prefix + name)) is not None:
        fix = f"leave it out: {why}"
    return SpecError(
        file=file, key=prefix + quoted_key(name), found="an unknown key", expected=", ".join(keys), fix=fix
    )


def _missing_key(key: Key, prefix: str, file: str) -> SpecError:
    if not prefix:
        fix = f"add a table [{key.name}]" if key.part else f"add {key.name} at the top of the file"
    elif key.part:
        inside = ", ".join(f"{inner.name} = ..." for inner in keys_of(key.part) if inner.required)
        fix = f"add {key.name} = {{ {inside} }} to {prefix[:-1]}"
    else:
        fix = f"add {key.name} to {prefix[:-1]}"
    return SpecError(file=file, key=prefix + key.name, found="nothing", expected=key.expected, fix=fix)


# Loads a spec file by name or path; failures are a SpecError that says what was expected.


SpecLike: TypeAlias = GemmSpec | str | os.PathLike[str]
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


# Writes a spec as the table of its file: only given keys.


def spec_table(part: Part) -> dict[str, Any]:
    """Return the given keys of a spec, or of one of its tables; `spec_of_table` reads them back.

    >>> from cutegen.spec import load_spec
    >>> spec_table(load_spec("sm80_hgemm_tn"))["tile"]
    {'cta': (128, 128, 64), 'stages': 3}
    """
    defaults = {field.name: field.default for field in fields(part)}  # type: ignore[arg-type]  # every Part is one
    table: dict[str, Any] = {}
    for key in keys_of(type(part)):
        value = getattr(part, key.name)
        if key.required or value != defaults[key.name]:
            table[key.name] = spec_table(value) if isinstance(value, Part) else value
    return table


def spec_reference(spec: GemmSpec) -> str | dict[str, Any]:
    """Return the name of an equal shipped spec, else its table, so that a list of kernels is readable anywhere."""
    if spec.name in shipped_specs() and load_spec(spec.name) == spec:
        return spec.name
    return spec_table(spec)


def recorded_name(spec: GemmSpec) -> str:
    """Return a unique name for a recorded spec: its own name with a digest of its request.

    Two specs of a program may have the same name, and so may a spec before and after an edit.

    >>> from cutegen.spec import load_spec
    >>> recorded_name(load_spec("sm80_hgemm_tn"))[:-8]
    'sm80_hgemm_tn-'
    """
    asked = spec_table(spec)
    asked.pop("description", None)  # specs that differ only in it are equal
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    name = "".join(letter if is_line(letter) else "_" for letter in spec.name or "kernel")
    return f"{name}-{digest[:8]}"
