"""The known keys of a spec, from the dataclasses of `model`, for loader, validation and documentation."""

import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cutegen.spec.checks import Check, Mismatch
from cutegen.support.words import typed

NOT_A_KEY = {"toml": False}
"""Metadata of a field that only Python sets, not TOML."""


class Part:
    """A table of the spec. Its fields are its keys; a field's `Annotated` check validates the value."""

    __slots__ = ()

    def contradiction(self) -> Mismatch | None:
        """Return conflicts between keys of this table. Called if each of them is valid on its own."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One known key: a value validated by `check`, or a table `part`; `optional` if it may be left out.

    `switch` means that the table can also be false or true.
    """

    name: str
    required: bool
    optional: bool
    check: Check | None = None
    part: type[Part] | None = None
    switch: bool = False

    @property
    def expected(self) -> str:
        """The permitted values as text."""
        if self.check is not None:
            return self.check.expected
        assert self.part is not None
        table = f"a table with {', '.join(key.name for key in keys_of(self.part))}"
        return f"{table}; or true or false" if self.switch else table


_KEYS: dict[type[Part], tuple[Key, ...]] = {}  # derived once; mypy does not let functools.cache take a class


def keys_of(part: type[Part]) -> tuple[Key, ...]:
    """Return the keys of one table, in order of declaration."""
    if part not in _KEYS:
        hints = get_type_hints(part, include_extras=True)
        _KEYS[part] = tuple(
            _key(field.name, hints[field.name], required=field.default is MISSING)
            for field in fields(part)  # type: ignore[arg-type]  # every Part is a dataclass
            if field.metadata.get("toml", True)
        )
    return _KEYS[part]


def _key(name: str, hint: Any, *, required: bool) -> Key:
    """Take `Annotated[int, check] | None`, `Smem` or `SmemLayout | Literal[False] | None` apart."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    parts = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, Part)]
    checks = [get_args(choice)[1] for choice in choices if get_origin(choice) is Annotated]
    assert len(parts) + len(checks) == 1, f"{name}: a key is either a table or a checked value"
    return Key(
        name=name,
        required=required,
        optional=type(None) in choices,
        check=checks[0] if checks else None,
        part=parts[0] if parts else None,
        switch=Literal[False] in choices,
    )


def known_keys(part: type[Part], prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Yield every known key below `part` with its dotted name, tables before their keys."""
    for key in keys_of(part):
        yield prefix + key.name, key
        if key.part is not None:
            yield from known_keys(key.part, f"{prefix}{key.name}.")


def mismatches(part: Part, prefix: str = "") -> Iterator[tuple[str, Mismatch]]:
    """Yield the invalid values in `part`, each with its dotted key."""
    sound = True
    for key in keys_of(type(part)):
        for fault in _value_mismatches(key, getattr(part, key.name), prefix):
            sound = False
            yield fault
    if sound and (wrong := part.contradiction()):
        yield f"{prefix}{wrong.key}".rstrip("."), wrong


def _value_mismatches(key: Key, value: object, prefix: str) -> Iterator[tuple[str, Mismatch]]:
    dotted = prefix + key.name
    if (value is None and key.optional) or (value is False and key.switch):
        return
    if key.part is None:
        assert key.check is not None
        if wrong := key.check(value):
            yield dotted, wrong
    elif isinstance(value, key.part):
        yield from mismatches(value, f"{dotted}.")
    elif value is True and key.switch:  # in Python; a file's true has become a part
        yield dotted, Mismatch(found=typed(value), expected=f"{key.part.__name__}(), False or None in Python")
    else:
        fix = f"write [{dotted}], not [[{dotted}]]" if isinstance(value, tuple) else ""
        yield dotted, Mismatch(found=typed(value), expected=key.expected, fix=fix)
