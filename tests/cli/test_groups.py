"""Groups that options name: listed sizes, a distribution's, or all the same."""

from __future__ import annotations

import pytest

from cutegen.cli.groups import GivenGroups, named_groups
from cutegen.contract.problem import Distribution, Groups, ProblemShape
from cutegen.errors import RequestError

PACKED, PADDED = Groups("m"), Groups("m", "padded")
SHAPE = ProblemShape(203, 64, 32)


@pytest.mark.parametrize(
    ("number", "sizes", "found"),
    [
        (None, "3,0,200", (3, 0, 200)),
        (3, None, (67, 67, 67)),
        (None, None, (50, 50, 50, 50)),
        (3, "zipf", Distribution.ZIPF.sizes(203, 3, 5)),
        (6, "routed", Distribution.ROUTED.sizes(203, 6, 5)),
    ],
)
def test_sizes_of_packed_groups(number: int | None, sizes: str | None, found: tuple[int, ...]) -> None:
    assert named_groups(number, sizes).of_problem(PACKED, SHAPE, seed=5) == found


def test_padded_groups_have_all_their_room_or_listed_sizes() -> None:
    assert named_groups(2, None).of_problem(PADDED, SHAPE) == (203, 203)
    assert named_groups(None, "203,203").of_problem(PADDED, SHAPE) == (203, 203)
    with pytest.raises(RequestError, match="found zipf with padded groups"):
        named_groups(2, "zipf").of_problem(PADDED, SHAPE)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError, match="found 204 along M; expected at most 203"):
        named_groups(None, "4,200").of_problem(PACKED, SHAPE)
    with pytest.raises(RequestError, match="found 3 with 2 sizes"):
        named_groups(3, "4,200")
    with pytest.raises(RequestError, match="or one of uniform, spread, routed, zipf, hot"):
        named_groups(3, "gauss")
    with pytest.raises(RequestError, match="a spec without groups"):
        GivenGroups(3, None).of_problem(None, SHAPE)
