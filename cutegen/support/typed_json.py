"""Reads JSON text into frozen dataclasses by their annotations; a misfit is rejected with its address.

A file of unknown origin is checked here before any value is used. Text that two readers of JSON may understand
differently is refused: an object with one key twice, a byte-order mark, another encoding than UTF-8, a number beyond 64
bits. A key may be missing only if its field is None by default. Supported are dataclasses, `tuple[X, ...]`,
`tuple[X, Y]`, `Mapping[str, X]`, `Literal`, `X | None`, `str`, `int`, `float` and `bool`.
"""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import inf
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from cutegen.errors import ArtifactError

Value = TypeVar("Value")

LINE = "a line of printable text"
_NOUNS = {str: LINE, int: "an integer of 64 bits", float: "a number", bool: "true or false"}
_INT64 = range(-(2**63), 2**63)


class _MisfitError(Exception):
    """A misfit: the address, the value, what was expected."""


def parse(text: bytes | str, file: str) -> Any:
    """Return the JSON value in `text`, UTF-8, which messages call `file`.

    Raises ArtifactError, also for unlimited nesting, and for text that another reader may understand differently.
    """
    try:
        decoded = text.decode() if isinstance(text, bytes) else text  # json.loads would guess the encoding of bytes
        if decoded.startswith("\ufeff"):
            raise ArtifactError(f"{file}: found a byte-order mark; expected JSON without one")
        return json.loads(  # noqa: TID251
            decoded, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_distinct
        )
    except RecursionError:
        raise ArtifactError(f"{file}: found JSON nested deeper than Python can read; expected a few levels") from None
    except ValueError as error:
        raise ArtifactError(f"{file}: not JSON: {error}") from error


def parse_object(text: bytes | str, file: str) -> dict[str, Any]:
    """Return the JSON object in `text`. Raises ArtifactError."""
    value = parse(text, file)
    if not isinstance(value, dict):
        raise ArtifactError(f"{file}: found {shown(value)}; expected a JSON object")
    return value


def read(kind: type[Value], value: Any, file: str, address: str = "") -> Value:
    """Read the JSON `value` at `address` in `file` as a `kind`.

    Raises ArtifactError with the address of the first value of another type, unknown key or missing key.
    """
    try:
        return _read(kind, value, address)  # type: ignore[no-any-return]
    except _MisfitError as error:
        raise ArtifactError(f"{file}: {error}") from None


def is_line(text: str) -> bool:
    """Tell whether a text is a LINE: without terminal escapes or surrogates, which no stream can encode."""
    return text.isprintable()


def shown(value: object) -> str:
    """Format a value of any size and depth in a few printable characters."""
    return reprlib.repr(value)


def _read(kind: Any, value: Any, address: str) -> Any:
    origin = get_origin(kind)
    if is_dataclass(kind):
        return _object(kind, value, address)
    if origin in (Union, UnionType):
        (other,) = (each for each in get_args(kind) if each is not NoneType)
        return None if value is None else _read(other, value, address)
    if origin is Literal:
        return _literal(get_args(kind), value, address)
    if origin is tuple:
        return _tuple(get_args(kind), value, address)
    if origin is Mapping:
        return _mapping(get_args(kind)[1], value, address)
    return _plain(kind, value, address)


def _object(kind: Any, value: Any, address: str) -> Any:
    if not isinstance(value, dict):
        _misfit(address, value, "an object")
    hints = _hints(kind)
    for name in value:
        if name not in hints:
            _misfit(address, f"the key {shown(name)}", f"only {', '.join(hints)}", verbatim=True)
    for field in fields(kind):
        if field.name not in value and field.default is not None:
            _misfit(_at(address, field.name), "nothing", "a value", verbatim=True)
    return kind(**{name: _read(hints[name], each, _at(address, name)) for name, each in value.items()})


def _literal(allowed: tuple[Any, ...], value: Any, address: str) -> Any:
    if not isinstance(value, str) or value not in allowed:
        _misfit(address, value, f"one of {', '.join(allowed)}")
    return value


def _tuple(kinds: tuple[Any, ...], value: Any, address: str) -> tuple[Any, ...]:
    any_length = kinds[-1] is Ellipsis
    if not isinstance(value, (list, tuple)):  # asdict keeps tuples, JSON turns them into lists
        _misfit(address, value, "a list")
    if not any_length and len(value) != len(kinds):
        _misfit(address, value, f"a list of {len(kinds)}")
    each = kinds[:1] * len(value) if any_length else kinds
    return tuple(_read(kind, x, f"{address}[{i}]") for i, (kind, x) in enumerate(zip(each, value, strict=True)))


def _mapping(kind: Any, value: Any, address: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _misfit(address, value, "an object")
    return {_plain(str, name, address): _read(kind, each, _at(address, shown(name))) for name, each in value.items()}


def _plain(kind: Any, value: Any, address: str) -> Any:
    # bool is an int to Python, and an int is a number to JSON.
    fits = type(value) is kind or (kind is float and type(value) is int)
    if fits and type(value) is str:
        fits = is_line(value)
    if fits and type(value) is int:
        fits = value in _INT64
    if not fits:
        _misfit(address, value, _NOUNS[kind])
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _at(address: str, name: str) -> str:
    return f"{address}.{name}" if address else name


def _misfit(address: str, value: Any, expected: str, *, verbatim: bool = False) -> NoReturn:
    found = value if verbatim else shown(value)
    raise _MisfitError(
        f"{address}: found {found}; expected {expected}" if address else f"found {found}; expected {expected}"
    )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (inf, -inf):
        raise ValueError(f"{shown(text)} is beyond the numbers of 64 bits")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of `pairs`. Raises ValueError for a key that appears twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise ValueError(f"found the key {shown(twice)} twice in one object")
    return found
