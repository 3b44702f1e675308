"""Whatever a file holds, loading it yields a spec or a SpecError of one line, and a place in an expression."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.errors import SpecError
from cutegen.spec import GemmSpec, known_keys, load_spec, parse_spec

KEYS = sorted({part for dotted, _ in known_keys(GemmSpec) for part in dotted.split(".")})

scalars = st.one_of(
    st.booleans().map(lambda value: "true" if value else "false"),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: repr(value).replace("e", "e0")),
    st.sampled_from(
        ["2024-01-01", "12:30:00", "nan", "-inf", "0xff", "''", "'k'", "'n'", "'f16'", "'sm80'", "'universal'"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="'\r\n", exclude_categories=["Cc"])).map("'{}'".format),
    st.from_regex(
        r"'(Sw<-?\d{1,3},\d{1,3},-?\d{1,3}> o )?\(-?\d{1,4},\(?\d{0,4},?\d{1,20}\)*(:[-(),\d]{0,12})?'", fullmatch=True
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from([*KEYS, '"a b"', "x"]), inner, max_size=4).map(
            lambda table: "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }"
        ),
    ),
    max_leaves=8,
)
DOTTED = [dotted for dotted, _ in known_keys(GemmSpec)]
MINIMAL = {
    "family": "'sm80'",
    "problem.a": "{ dtype = 'f16', major = 'k' }",
    "problem.b": "{ dtype = 'f16', major = 'k' }",
    "problem.c": "{ dtype = 'f16', major = 'n' }",
}


def loads_or_refuses(text: str) -> None:
    message = message_of(lambda: parse_spec(text, file="x.toml"))
    if message is not None:
        line, *place = message.split("\n")
        assert line.startswith("x.toml: ")
        assert line.isprintable()
        assert len(message) < 1200
        assert not place or (line.startswith("x.toml: epilogue.expression: ") and place[1].strip() == "^")


def message_of(load: Callable[[], GemmSpec]) -> str | None:
    """None when the spec loads, and is then a value that can be hashed."""
    try:
        hash(load())
    except SpecError as error:
        return str(error)
    return None


@given(st.dictionaries(st.sampled_from([*DOTTED, "x", "tile.x"]), values, min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_any_value_at_any_key(table: dict[str, str]) -> None:
    lines = [f"{key} = {value}" for key, value in (MINIMAL | table).items()]
    loads_or_refuses("\n".join(lines))


@given(st.text(max_size=200))
@settings(deadline=None)
def test_any_text(text: str) -> None:
    loads_or_refuses(text)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    message = message_of(lambda: load_spec(path))
    assert message is None or message.startswith(f"{path}: ")


@given(st.text(max_size=40))
@settings(deadline=None)
def test_any_name(name: str) -> None:
    assert message_of(lambda: load_spec(name)) != ""
