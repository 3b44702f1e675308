"""`g2s.a.l2`, `g2s.b.l2`: what goes through L2 once is given up first, by the spec or for a problem."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.render import render
from cutegen.render.spec_lines import settled_spec
from cutegen.run import Kernel
from cutegen.spec import G2s, G2sCopy, GemmSpec, Schedule, Tile
from cutegen.verify import compare, float64_reference, random_operands
from tests.plan.specs import gemm

FIRST, NORMAL = G2sCopy(l2="evict_first"), G2sCopy(l2="evict_normal")
POLICY, NONE = 0x12F0000000000000, 0
"""Of CUTLASS, `TMA::CacheHintSm90::EVICT_FIRST` in `cute/arch/copy_sm90_desc.hpp`, and what the DSL passes itself."""
COPY = re.compile(r"cp\.async\.bulk\.tensor\S*shared::cta\.global\S*L2::cache_hint .*, (%rd\d+);")


def spec(cta: tuple[int, int, int] = (64, 64, 64), stages: int | None = 2, **keys: object) -> GemmSpec:
    return replace(gemm(), family="sm90", tile=Tile(cta, stages), name="evicted", **keys)  # type: ignore[arg-type]


def planned(of: GemmSpec, problem: tuple[int, int, int] | None = None) -> GemmPlan:
    found = plan(of, "sm_90", problem)
    assert isinstance(found, GemmPlan)
    return found


def test_nothing_is_hinted_where_nothing_is_known() -> None:
    found = planned(spec())
    assert found.evicted_first == ()
    assert "cache_policy" not in render(found).text
    assert not any(decision.key.endswith("l2") for decision in found.decisions)


@pytest.mark.parametrize(
    ("problem", "slices", "operands"),
    [
        ((64, 8192, 8192), 1, ("b",)),  # one row of tiles: each column of B's is read by one CTA
        ((8192, 64, 8192), 1, ("a",)),
        ((128, 4096, 4096), 1, ("b",)),  # two, both at once, and L2 holds it all
        ((128, 4096, 14336), 1, ("a", "b")),  # L2 does not, so that A goes first too
        ((128, 16384, 1024), 1, ()),  # two, but not at once
        ((256, 8192, 8192), 1, ()),  # four
        ((64, 512, 512), 1, ()),  # all of it fits beside everything else
        ((8192, 8192, 64), 1, ()),
        ((256, 256, 65536), 8, ("a", "b")),  # deep: four CTAs read each row, all at once
        ((256, 256, 65536), 4, ()),
        ((256, 256, 65536), 16, ()),  # two rounds
        ((64, 1024, 65536), 8, ("a", "b")),
        ((16, 1024, 32768), 8, ("b",)),  # A is small
        ((64, 4096, 14336), 2, ("b",)),  # one CTA reads each row of a slice
        ((128, 4096, 14336), 2, ()),
    ],
)
def test_the_operand_that_goes_through_l2_once_is_given_up_first(
    problem: tuple[int, int, int], slices: int, operands: tuple[str, ...]
) -> None:
    schedule = Schedule(swap=False, consumers="cooperative", cluster=(1, 1), split_k=slices, reduction="workspace")
    found = planned(spec(stages=None, schedule=schedule), problem)
    assert found.evicted_first == operands
    decided = {decision.key: decision for decision in found.decisions if decision.key.endswith("l2")}
    assert set(decided) == {f"g2s.{name}.l2" for name in operands}
    assert all(each.for_problem and not each.given for each in decided.values())
    for name, extent in zip("ab", problem, strict=False):
        said = f"reads {2 * extent * problem[2] / 1e6:,.1f} MB of it, each row of tiles by "
        assert name not in operands or said in decided[f"g2s.{name}.l2"].for_problem


def test_multiplications_that_take_longer_than_memory_are_left_alone() -> None:
    asked = spec((256, 128, 64), None, schedule=Schedule(swap=False, cluster=(1, 1), split_k=1))
    assert planned(asked, (512, 8192, 8192)).evicted_first == ()


def test_what_is_given_stands() -> None:
    problem = (64, 8192, 8192)
    assert planned(spec(g2s=G2s(b=NORMAL)), problem).evicted_first == ()
    found = planned(spec(g2s=G2s(a=FIRST, b=FIRST)))
    assert found.evicted_first == ("a", "b")
    assert [(x.key, x.chosen, x.given) for x in found.decisions if x.key.endswith("l2")] == [
        ("g2s.a.l2", "evict_first", True),
        ("g2s.b.l2", "evict_first", True),
    ]


def test_exchanged_operands_are_the_kernels() -> None:
    found = planned(spec(schedule=Schedule(swap=True)), (64, 8192, 8192))
    assert found.evicted_first == ("a",)


def test_the_spec_at_a_kernels_end_makes_the_same_kernel_without_the_problem() -> None:
    found = planned(spec(schedule=Schedule(swap=True)), (64, 8192, 8192))
    again = planned(settled_spec(found))
    assert again.evicted_first == found.evicted_first
    assert "cache_policy=Int64(EVICT_FIRST)" in render(again).text


@pytest.mark.parametrize(("first", "normal"), [("a", "b"), ("b", "a")])
def test_copies_carry_the_policy_and_results_are_right(first: str, normal: str, kernels: Cache) -> None:
    asked = spec(g2s=G2s(**{first: FIRST}), stages=2)
    artifact = build(build_request(asked, "sm_90"), kernels)
    registers = COPY.findall(artifact.ptx)
    values = {name: int(value) for name, value in re.findall(r"mov\.b64\s+(%rd\d+), (\d+);", artifact.ptx)}
    # A CTA's first k-tile, and those of the loop.
    for pair in (registers[:2], registers[2:]):
        a, b = (values[name] for name in pair)
        assert {"a": a, "b": b} == {first: POLICY, normal: NONE}
    kernel = Kernel(artifact)
    x, y, out = random_operands(kernel.contract, 100, 72, 136, seed=4)
    kernel(x, y, out=out)
    assert compare(out, float64_reference(x, y), dtype="f16").ok


def test_other_families_have_no_such_key() -> None:
    with pytest.raises(SpecError, match=r"g2s\.a\.l2"):
        plan(gemm(g2s=G2s(a=FIRST)), "sm_80")
