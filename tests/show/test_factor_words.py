"""The way of a factor in atoms, through shared memory to tensor memory, by the layouts' formulas."""

from __future__ import annotations

import random

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError
from cutegen.plan import GemmPlan, plan
from cutegen.show.follow import Element, Follower, OperandElementPath
from cutegen.spec import load_spec

PROBLEM = ProblemShape(500, 700, 1000)


@pytest.mark.parametrize(("name", "values"), [("sm100_mxf8_tn", 32), ("sm100_nvf4_tn", 8)])
def test_a_factor_is_where_its_row_and_its_k_are(name: str, values: int) -> None:
    """`values` are the elements of a factor: nvf4's 16 are 8 bytes of two."""
    found = plan(load_spec(name), "sm_100")
    assert isinstance(found, GemmPlan)
    follower, rng = Follower(found, PROBLEM), random.Random(7)
    (cta_m, cta_n, cta_k), sums = found.cta_tile, found.mma.accumulator
    along_k = cta_k // (4 * values)
    atoms = {"a": along_k, "b": along_k * (2 if cta_n % 128 else 1)}
    for operand, rows_of_tile, rows in (("a", cta_m, PROBLEM.m), ("b", cta_n, PROBLEM.n)) * 20:
        row, k = rng.randrange(rows), rng.randrange(-(-PROBLEM.k // values))
        way = follower.path_of(Element(f"scale_{operand}", (row, k)))
        assert isinstance(way, OperandElementPath)
        assert way.scales is not None
        assert way.tensor_memory is not None
        leading_bytes = -(-PROBLEM.k // (4 * values)) * 512
        atom, within = k // 4, row % 32 * 16 + row % 128 // 32 * 4
        assert way.source.byte == row // 128 * leading_bytes + atom * 512 + within
        assert (list(way.scales.rows), way.scales.k.start) == ([row], k * values)
        tile, stage = row // rows_of_tile, atom // along_k % found.stages
        block = row // 128 - tile * rows_of_tile // 128
        of_operand = atom % along_k * (atoms[operand] // along_k) + block
        assert way.shared.stage == stage
        assert way.shared.offset_bytes == (stage * atoms[operand] + of_operand) * 512 + within
        column = sums.buffers * cta_n + 4 * (stage * sum(atoms.values()) + (operand == "b") * atoms["a"] + of_operand)
        place = way.tensor_memory
        assert (place.lane, place.column, place.byte) == (row % 32, column + row % 128 // 32, k % 4)
        scaled = {each.thread: each.values for each in way.meets}
        first = row - tile * rows_of_tile
        wanted = {first: tuple(range(cta_n))} if operand == "a" else dict.fromkeys(range(128), (first,))
        assert scaled == wanted


def test_a_factor_beyond_the_last_is_refused() -> None:
    found = plan(load_spec("sm100_mxf8_tn"), "sm_100")
    assert isinstance(found, GemmPlan)
    with pytest.raises(RequestError, match="found k 32; expected 0 to 31"):
        Follower(found, PROBLEM).path_of(Element("scale_a", (0, 32)))
