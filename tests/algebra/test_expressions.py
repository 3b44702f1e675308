"""Operations on layouts as people write them: the DSL's own results, and mistakes with their positions."""

from __future__ import annotations

import random

import pytest

from cutegen.algebra import format_layout, offsets, parse_expression, parse_layout
from cutegen.algebra.expressions import OPERATIONS

BY_CUTES_PAGE = {
    "composition((6,2):(8,2), (4,3):(3,1))": "((2,2),3):((24,2),8)",
    "complement(4:1, 24)": "6:4",
    "complement(6:4, 24)": "4:1",
    "complement(4:2, 24)": "(2,3):(1,8)",
    "complement((2,2):(1,6), 24)": "(3,2):(2,12)",
    "logical_divide((4,2,3):(2,1,8), 4:2)": "((2,2),(2,3)):((4,1),(2,8))",
    "logical_divide((9,(4,8)):(59,(13,1)), (3:3,(2,4):(1,8)))": "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))",
    "zipped_divide((9,(4,8)):(59,(13,1)), (3:3,(2,4):(1,8)))": "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))",
    "zipped_divide((9,(4,8)):(59,(13,1)), <3:3, (2,4):(1,8)>)": "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))",
    "composition((12,(4,8)):(59,(13,1)), <3:4, 8:2>)": "(3,(2,4)):(236,(26,1))",
    "logical_product((2,2):(4,1), 6:1)": "((2,2),(2,3)):((4,1),(2,8))",
    "logical_product((16,8,8), (4,2))": "((16,4),(8,2),8):((1,16),(16,1),128)",
    "logical_product((16,8,8), <4:1,2:1>)": "((16,4),(8,2),8):((1,16),(16,1),128)",
    "logical_product((16,8,8), (4,2):(1,4))": "((16,8,8),(4,2)):((1,16,128),(1024,4096))",
    "logical_product(4, 1)": "(4,1):(1,0)",
    "zipped_divide((16,2):(1,16), (1,2))": "((1,2),(16,1)):((0,16),(1,0))",
    "blocked_product((2,5):(5,1), (3,4):(1,3))": "((2,3),(5,4)):((5,10),(1,30))",
    "raked_product((2,5):(5,1), (3,4):(1,3))": "((3,2),(4,5)):((10,5),(30,1))",
    "coalesce((2,(1,6)):(1,(6,2)))": "12:1",
    "right_inverse((4,8):(8,1))": "(8,4):(4,1)",
    "right_inverse((4,2,2):(1,1,4))": "(4,2):(1,8)",
    "right_inverse((8,4):(1,1))": "8:1",
    "right_inverse((2,3):(2,2))": "1:0",
    "tiled_divide((8,8):(1,8), (2,4))": "((2,4),4,2):((1,8),2,32)",
    "flat_divide((8,8):(1,8), (2,4))": "(2,4,4,2):(1,8,2,32)",
    "tiled_divide((12,4):(24,2), 6:1)": "(6,2,4):(24,144,2)",
    "flat_divide((2,16):(4,16), 6)": "(2,3,6):(4,16,48)",
    "composition(Sw<3,3,3> o (8,64):(64,1), (4,16))": "Sw<3,3,3> o 0 o (4,16):(64,1)",
    "coalesce(zipped_divide((8,8):(1,8), (8,2)))": "64:1",
    "composition(1:8, 4:2)": "4:16",
    "composition((2,1):(6,16), 6)": "(2,3):(6,16)",
    "zipped_divide((64,1):(1,64), (64,8))": "((64,8),(1,1)):((1,64),(0,0))",
    "zipped_divide((4,(2,4)), <2,<2,2>>)": "((2,(2,2)),(2,(1,2))):((1,(4,8)),(2,(0,16)))",
    "tiled_divide((8,(4,2)):(8,(1,4)), <4,<2>>)": "((4,(2)),2,(2,2)):((8,(1)),32,(2,4))",
}
"""Most are examples of CUTLASS's `02_layout_algebra.md`; the others are printouts of the DSL."""


@pytest.mark.parametrize("text", BY_CUTES_PAGE)
def test_the_examples_of_cutes_page(text: str) -> None:
    assert format_layout(parse_expression(text)).replace("_", "") == BY_CUTES_PAGE[text]


def test_a_plain_layout_is_read_as_ever() -> None:
    for text in ("(8,64):(64,1)", "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)", "S<1,2,2>o(8,8)", "(16,8)", "7:_3"):
        assert parse_expression(text) == parse_layout(text)


@pytest.mark.parametrize(
    ("text", "printed"),
    [("(4,1)", "(_4,_1):(_1,_0)"), ("1", "_1:_0"), ("(1,(4,1),2)", "(_1,(_4,_1),_2):(_0,(_1,_0),_4)")],
)
def test_a_static_mode_of_one_element_has_stride_0_unless_another_is_given(text: str, printed: str) -> None:
    assert format_layout(parse_expression(text)) == printed
    assert format_layout(parse_expression("(4,1):(1,4)")) == "(_4,_1):(_1,_4)"


def test_an_operation_on_a_swizzled_layout_changes_where_coordinates_go_and_not_the_swizzle() -> None:
    divided = parse_expression("zipped_divide(Sw<3,3,3> o (8,64):(64,1), (8,8))")
    affine = parse_expression("zipped_divide((8,64):(64,1), (8,8))")
    swizzle = parse_layout("Sw<3,3,3> o 512:1")
    assert offsets(divided).tolist() == offsets(swizzle)[offsets(affine)].tolist()


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("divide((8))", 0, "found 'divide'; expected a layout or one of composition, logical_divide"),
        ("composition((8,8))", 17, "expected ',', found ')'"),
        ("composition((8,8), Sw<1,1,1> o 8)", 19, "expected a layout without a swizzle"),
        ("complement(Sw<3,3,3> o (8,64))", 0, "complement of a swizzled layout"),
        ("complement((2,2):(1,1), 8)", 0, "(_2,_2):(_1,_1) has no complement: stride 1 is below 2"),
        ("complement((3,2):(2,3), 24)", 0, "has no complement: stride 3 is below 6"),
        ("left_inverse((2,2):(2,5))", 0, "has no left inverse: its stride 5 is not a multiple of its stride 2"),
        ("logical_divide(64, (4,4):(1,2))", 0, "(_4,_4):(_1,_2) has no complement: stride 2 is below 4"),
        ("zipped_divide((64,8), <(4,4):(1,2)>)", 0, "(_4,_4):(_1,_2) has no complement"),
        ("logical_product((4,4):(1,2), 2)", 0, "(_4,_4):(_1,_2) has no complement"),
        ("raked_product((4,4):(1,2), (2,2))", 0, "(_4,_4):(_1,_2) has no complement"),
        ("right_inverse(8, 8)", 15, "expected ')', found ',': right_inverse has one argument"),
        ("zipped_divide((8,8), (2,3,4))", 0, "3 tilers for a layout of 2 modes"),
        ("logical_divide((8,8), (0,2))", 23, "expected an integer of at least 1"),
        ("logical_divide((3,2):(2,1), 4:2)", 0, "not divisible"),
        ("zipped_divide((8,8), (2,4)", 26, "expected ')', found 'the end'"),
        ("zipped_divide((8,8), <2,4)", 25, "expected '>', found ')'"),
        ("composition(8, " + "<" * 17, 31, "more than 16 nested modes"),
        ("(6,2):(8,2) o (4,3):(3,1)", 12, "`composition(A, B)` composes layouts"),
        ("coalesce(" * 17 + "8" + ")" * 17, 144, "more than 16 nested operations"),
        ("blocked_product((2,2), 4:2, 3)", 26, "blocked_product has two arguments; several modes are in parentheses"),
        ("composition(Sw<1,1,1>, (8,8))", 21, "found ','; a swizzle is in front of a layout, as in Sw<3,3,3> o (8,64)"),
        ("swizzle<1,1,1> o (8,8)", 0, "found 'swizzle'; expected a layout"),
    ],
)
def test_a_mistake_names_its_position(text: str, position: int, said: str) -> None:
    with pytest.raises(ValueError, match="position") as refused:
        parse_expression(text)
    assert f"position {position}: " in str(refused.value)
    assert said in str(refused.value)


def test_text_at_random_is_read_or_refused_with_a_reason() -> None:
    rng = random.Random(random.getrandbits(64))
    pieces = [
        *OPERATIONS,
        "(",
        ")",
        ",",
        ":",
        "8",
        "_4",
        "(8,8)",
        *"<>",
        "Sw<1,2,2>",
        " o ",
        "o",
        "2:4",
        "-1",
        "é",
        "_",
    ]
    for _ in range(3000):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 12)))
        try:
            parse_expression(text)
        except ValueError as error:
            assert "position" in str(error), text  # noqa: PT017 - what is refused is random
