"""Parses a TOML text to a `GemmSpec`. Checks keys here (unknown, missing, misplaced); the spec itself checks values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from cutegen.errors import SpecError
from cutegen.spec.model import GemmSpec
from cutegen.spec.schema import Key, Part, keys_of, known_keys
from cutegen.support.literals import literal, nearest, quoted_key

DEEPEST_NESTING = 16  # a spec has four levels of tables; deeper ones would break messages
_A_SPEC = "a spec: family, and under [problem] the operands a, b and c"
_AS_TOML = '{"problem": {"a": {"dtype": "f16"}}} is written problem.a.dtype = "f16"'
EVIDENCE = "tuned"
"""The table that a record of `cutegen tune` has in addition to its spec; specs ignore it."""
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
    if elsewhere:
        fix = f"the key {name} exists as {elsewhere[0]}"
    elif close:
        fix = f"did you mean {prefix}{close}?"
    else:
        fix = "leave it out"
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
