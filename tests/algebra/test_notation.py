"""Layout text: what may be written, what is refused and where, and that printing and reading are inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutegen.algebra import ComposedLayout, Dyn, Layout, Swizzle, format_layout, parse_layout
from cutegen.algebra.layout import coalesce, compose

trees = st.recursive(st.integers(1, 64), lambda sub: st.lists(sub, min_size=2, max_size=3).map(tuple), max_leaves=6)


def strides_like(shape: object, draw: st.DrawFn) -> object:
    if isinstance(shape, tuple):
        return tuple(strides_like(part, draw) for part in shape)
    return draw(st.integers(0, 4096))


@st.composite
def layouts(draw: st.DrawFn) -> Layout | ComposedLayout:
    shape = draw(trees)
    layout = Layout(shape, strides_like(shape, draw))
    if draw(st.booleans()):
        return layout
    bits = draw(st.integers(0, 4))
    swizzle = Swizzle(bits, draw(st.integers(0, 5)), draw(st.integers(bits, 6)))
    return ComposedLayout(swizzle, layout, offset=draw(st.integers(0, 512)))


@given(layouts())
def test_reading_inverts_printing(layout: Layout | ComposedLayout) -> None:
    assert parse_layout(format_layout(layout)) == layout


@given(layouts())
def test_underscores_and_spaces_do_not_matter(layout: Layout | ComposedLayout) -> None:
    text = format_layout(layout).replace("_", "").replace(",", " , ").replace(":", " : ")
    assert parse_layout(text) == layout


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("8", Layout(8, 1)),
        ("(16,8)", Layout((16, 8), (1, 16))),
        ("(16,8):(8,1)", Layout((16, 8), (8, 1))),
        ("(_8,(_8,_8)):(_8,(_1,_64))", Layout((8, (8, 8)), (8, (1, 64)))),
        ("Sw<3,3,3> o (8,64):(64,1)", ComposedLayout(Swizzle(3, 3, 3), Layout((8, 64), (64, 1)))),
        ("S<2,3,3> o 0 o (8,32):(32,1)", ComposedLayout(Swizzle(2, 3, 3), Layout((8, 32), (32, 1)))),
        ("Swizzle<3,3,-3> o _16 o 64:1", ComposedLayout(Swizzle(3, 3, -3), Layout(64, 1), offset=16)),
    ],
)
def test_notations(text: str, layout: Layout | ComposedLayout) -> None:
    assert parse_layout(text) == layout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "position 0: expected an integer, found 'the end'"),
        ("(8,", "position 3: expected an integer, found 'the end'"),
        ("(8,4", "position 4: expected ')', found 'the end'"),
        ("(8,4):(1", "position 8: expected ')', found 'the end'"),
        ("(8,4):1", "position 6: the stride is not nested like the shape; expected a stride such as (1,8)"),
        (
            "(8,(2,2)):(1,8,16)",
            "position 10: the stride is not nested like the shape; expected a stride such as (1,(8,16))",
        ),
        (
            "8,4:4,1",
            "position 1: expected the end, found ','; several modes are in parentheses, as in (8,64):(64,1)",
        ),
        ("(8,0)", "position 0: every extent of a shape is at least 1"),
        ("(8,x)", "position 3: expected an integer, found 'x'"),
        ("(8,4):(1,8) 3", "position 12: expected the end, found '3'"),
        ("Sw<3,3> o 8", "position 6: expected ',', found '>'"),
        ("Sw<3,3,2> o 8", "position 2: Swizzle<3,3,2> needs B >= 0, M >= 0 and |S| >= B"),
        ("Sw<3,3,3,3> o 8", "position 8: expected '>', found ','"),
        (
            "Sw<3,3,3> (8,8)",
            "position 10: expected 'o', found '('; a swizzle is in front of a layout, as in Sw<3,3,3> o (8,64):(64,1)",
        ),
        ("Sw<3,3,3> o 0 o", "position 15: expected an integer, found 'the end'"),
    ],
)
def test_refusals_say_where(text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        parse_layout(text)
    assert str(error.value) == f"layout {text!r}, {complaint}"


@given(st.text(alphabet="Sw<>o(),:_-0123456789 x", max_size=24))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        layout = parse_layout(text)
    except ValueError as error:
        refusal = str(error)
    else:
        assert parse_layout(format_layout(layout)) == layout
        return
    assert refusal.startswith(f"layout {text!r}, position ")


def test_run_time_integers_print_bare_and_never_merge() -> None:
    static, dynamic = Layout((2, 2), (8, 16)), Layout((2, 2), (Dyn(8), Dyn(16)))
    assert format_layout(coalesce(static)) == "_4:_8"
    assert format_layout(coalesce(dynamic)) == "(_2,_2):(8,16)"


def test_run_time_integers_stay_so_through_composition() -> None:
    assert format_layout(compose(Layout((4, 8), (1, Dyn(100))), Layout((2, 4), (2, 8)))) == "(_2,_4):(_2,200)"
    assert Dyn(3) * 0 == 0
    assert not isinstance(Dyn(3) * 0, Dyn)
