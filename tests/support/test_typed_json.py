"""JSON from a file becomes the values that its reader was promised, or one error with an address."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.errors import ArtifactError
from cutegen.support.typed_json import parse, parse_object, read


@dataclass(frozen=True)
class Leg:
    name: str
    kind: Literal["left", "right"]
    toes: int


@dataclass(frozen=True)
class Animal:
    legs: tuple[Leg, ...]
    size: tuple[int, float]
    ages: Mapping[str, int]
    tame: bool
    owner: Leg | None = None


TABLE: dict[str, Any] = {
    "legs": [{"name": "l", "kind": "left", "toes": 5}, {"name": "r", "kind": "right", "toes": 4}],
    "size": [1, 2.5],
    "ages": {"now": 3},
    "tame": True,
    "owner": None,
}
ANIMAL = Animal((Leg("l", "left", 5), Leg("r", "right", 4)), (1, 2.5), {"now": 3}, True)


def changed(*address: str | int, to: object) -> Any:
    """TABLE with another value at an address; `...` removes it."""
    table = json.loads(json.dumps(TABLE))
    *outer, last = address
    place = table
    for name in outer:
        place = place[name]
    if to is ...:
        del place[last]
    else:
        place[last] = to
    return table


def test_what_was_written_is_read() -> None:
    assert read(Animal, parse_object(json.dumps(asdict(ANIMAL)), "file"), "file") == ANIMAL
    assert read(Animal, asdict(ANIMAL), "file") == ANIMAL
    assert read(Animal, changed("owner", to=...), "file") == ANIMAL


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed("legs", 1, "toes", to="4"), "f: a.legs[1].toes: found '4'; expected an integer of 64 bits"),
        (changed("legs", 1, "toes", to=True), "f: a.legs[1].toes: found True; expected an integer of 64 bits"),
        (changed("legs", 0, "toes", to=1.0), "f: a.legs[0].toes: found 1.0; expected an integer of 64 bits"),
        (changed("legs", 0, "toes", to=1 << 63), "f: a.legs[0].toes: found 9223372036854775808; expected an integer"),
        (changed("legs", 0, "kind", to="both"), "f: a.legs[0].kind: found 'both'; expected one of left, right"),
        (changed("legs", 0, "kind", to=[]), "f: a.legs[0].kind: found []; expected one of left, right"),
        (
            changed("legs", 0, "name", to="\x1b[31m"),
            "f: a.legs[0].name: found '\\x1b[31m'; expected a line of",
        ),
        (changed("legs", 0, "name", to="\ud800"), "f: a.legs[0].name: found '\\ud800'; expected a line of printable"),
        (changed("legs", 0, "name", to=...), "f: a.legs[0].name: found nothing; expected a value"),
        (changed("legs", 0, "arms", to=2), "f: a.legs[0]: found the key 'arms'; expected only name, kind, toes"),
        (changed("legs", 0, to=5), "f: a.legs[0]: found 5; expected an object"),
        (changed("legs", to={}), "f: a.legs: found {}; expected a list"),
        (changed("legs", to=...), "f: a.legs: found nothing; expected a value"),
        (changed("size", to=[1, 2, 3]), "f: a.size: found [1, 2, 3]; expected a list of 2"),
        (changed("size", 1, to=None), "f: a.size[1]: found None; expected a number"),
        (changed("ages", to=[]), "f: a.ages: found []; expected an object"),
        (changed("ages", "now", to={}), "f: a.ages.'now': found {}; expected an integer of 64 bits"),
        (changed("ages", "\x1b", to=1), "f: a.ages: found '\\x1b'; expected a line of printable text"),
        (changed("tame", to=1), "f: a.tame: found 1; expected true or false"),
        (changed("owner", to=[]), "f: a.owner: found []; expected an object"),
    ],
)
def test_what_does_not_fit_has_an_address(table: Any, message: str) -> None:
    with pytest.raises(ArtifactError) as refused:
        read(Animal, table, "f", "a")
    assert str(refused.value).startswith(message)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "NaN", "[Infinity]", "1" * 5000, "", b"\xff", b"\x00"]
)
def test_what_is_no_json_is_refused_in_one_short_line(text: str | bytes) -> None:
    with pytest.raises(ArtifactError, match=r"^file: ") as refused:
        parse(text, "file")
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "found the key 'a' twice in one object"),
        ('{"a": 1, "\\u0061": 1}', "found the key 'a' twice in one object"),
        ('[{"deep": {"x": 1, "x": 1}}]', "found the key 'x' twice in one object"),
        ('\ufeff{"a": 1}', "found a byte-order mark; expected JSON without one"),
        ('{"a": 1e999}', "'1e999' is beyond the numbers of 64 bits"),
        ('{"a": -1e999}', "'-1e999' is beyond the numbers of 64 bits"),
    ],
)
def test_what_two_readers_may_understand_differently_is_refused(text: str, found: str) -> None:
    for each in (text, text.encode()):
        with pytest.raises(ArtifactError, match=rf"^file: (not JSON: )?{re.escape(found)}"):
            parse(each, "file")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_bytes_are_utf_8(encoding: str) -> None:
    with pytest.raises(ArtifactError, match=r"^file: "):
        parse('{"a": 1}'.encode(encoding), "file")
    assert parse('{"a": "\u00e9"}'.encode(), "file") == {"a": "\u00e9"}


def test_an_object_is_asked_for() -> None:
    with pytest.raises(ArtifactError, match=r"^file: found \[\]; expected a JSON object$"):
        parse_object("[]", "file")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@settings(max_examples=300, deadline=None)
@given(value=anything, name=st.sampled_from(sorted(TABLE)))
def test_any_value_anywhere_is_read_or_refused(value: object, name: str) -> None:
    try:
        found = read(Animal, {**TABLE, name: value}, "file")
    except ArtifactError as refused:
        message = str(refused)
    else:
        message = ""
        assert json.loads(json.dumps(asdict(found)))[name] == value
    assert message.isprintable()
