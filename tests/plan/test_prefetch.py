"""`g2s.a.prefetch`, `g2s.b.prefetch`: by the spec, or for weights that one CTA reads, or two that keep pace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.contract.launch import LaunchContract, gemm_parameters
from cutegen.errors import CutegenError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.prove import prove
from cutegen.plan.values.gemm_plan import Prefetch
from cutegen.render import render
from cutegen.render.spec_lines import settled_spec
from cutegen.spec import G2s, G2sCopy, GemmSpec, Operand, Problem, Schedule, Tile
from tests.plan.specs import gemm

NARROW = Schedule(swap=True, consumers="cooperative", cluster=(1, 1), split_k=1)


def planned(of: GemmSpec, problem: tuple[int, int, int] | None = None) -> GemmPlan:
    found = plan(of, "sm_90", problem)
    assert isinstance(found, GemmPlan)
    return found


def of_tile(*cta: int, stages: int | None = 2, **keys: object) -> GemmSpec:
    tile = Tile(cta, stages)  # type: ignore[arg-type]
    return replace(gemm(), family="sm90", tile=tile, name="prefetched", **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("problem", "k_tiles"),
    [
        ((16, 8192, 1024), 0),  # four k-tiles of 256: one would be prefetched
        ((16, 8192, 2048), 2),  # of eight
        ((16, 8192, 4096), 4),
        ((16, 8192, 5120), 5),
        ((16, 8192, 8192), 6),  # of 32 no more
        ((16, 4096, 4096), 4),  # 64 CTAs
        ((16, 3072, 4096), 0),  # 48: device memory has 100 GB/s for each, and a multiprocessor takes in 120
        ((16, 28672, 4096), 4),  # several tiles for each CTA
    ],
)
def test_a_quarter_of_k_of_weights_that_enough_ctas_read(problem: tuple[int, int, int], k_tiles: int) -> None:
    found = planned(of_tile(64, 16, 256, stages=5, schedule=NARROW), problem)
    assert found.prefetched == ((Prefetch("a", k_tiles),) if k_tiles else ())
    decided = [x for x in found.decisions if x.key.endswith("prefetch")]
    assert [x.key for x in decided] == ["g2s.a.prefetch"] * bool(k_tiles)
    for each in decided:
        assert each.chosen == f"the first {k_tiles} k-tiles"
        assert f"{-(-problem[2] // 256)} k-tiles of 256" in each.for_problem


@pytest.mark.parametrize(
    ("cta", "problem", "k_tiles"),
    [
        ((64, 64, 64), (128, 4096, 8192), 4),  # two CTAs read each row
        ((64, 64, 64), (80, 4096, 8192), 0),  # of which one has 16 rows of 64, and runs ahead
        ((64, 64, 64), (128, 4104, 8192), 0),
        ((64, 192, 64), (72, 10240, 4096), 0),
        ((64, 128, 64), (72, 8192, 8192), 0),
        ((64, 256, 64), (72, 16384, 8192), 4),  # but here its copies are mostly the other's, too
        ((128, 64, 64), (64, 8192, 8192), 6),  # one CTA reads the weights
        ((128, 64, 64), (72, 8192, 8192), 0),  # but the tile has more than 64 rows beside them
        ((128, 64, 64), (256, 4096, 8192), 0),
        ((64, 64, 64), (192, 2048, 8192), 0),  # three
        ((64, 64, 64), (2048, 2048, 2048), 0),
        ((64, 64, 64), (64, 512, 512), 0),  # L2 holds it
    ],
)
def test_what_one_or_two_ctas_read_that_keep_pace(
    cta: tuple[int, ...], problem: tuple[int, int, int], k_tiles: int
) -> None:
    schedule = Schedule(swap=False, consumers="cooperative", cluster=(1, 1), split_k=1)
    found = planned(of_tile(*cta, stages=None, schedule=schedule), problem)
    assert found.prefetched == ((Prefetch("b", k_tiles),) if k_tiles else ())
    assert ("prefetch_k_tiles" in render(found).text) is (k_tiles > 0)


def test_nothing_where_ctas_share_copies() -> None:
    schedule = Schedule(swap=False, consumers="cooperative", cluster=(1, 2), split_k=1)
    found = planned(of_tile(64, 64, 64, stages=None, schedule=schedule), (64, 8192, 8192))
    assert (found.evicted_first, found.prefetched) == (("b",), ())


@pytest.mark.parametrize(
    ("k", "slices", "cluster", "k_tiles"),
    [(16384, 2, (1, 1, 2), 6), (4096, 2, (1, 1, 2), 2), (4096, 2, (1, 1), 2), (4096, 4, (1, 1), 0)],
)
def test_a_quarter_of_a_slice(k: int, slices: int, cluster: tuple[int, ...], k_tiles: int) -> None:
    schedule = replace(NARROW, cluster=cluster, split_k=slices)
    found = planned(of_tile(64, 16, 256, stages=5, schedule=schedule), (16, 4096, k))
    assert found.evicted_first == ("a",)
    assert found.prefetched == ((Prefetch("a", k_tiles),) if k_tiles else ())


def test_nothing_of_slices_whose_stages_are_mostly_activations() -> None:
    asked = of_tile(64, 128, 128, stages=4, schedule=replace(NARROW, cluster=(1, 1, 2), split_k=2))
    found = planned(asked, (128, 4096, 14336))
    assert (found.evicted_first, found.prefetched) == (("a",), ())


def test_the_choice_for_a_narrow_problem() -> None:
    """What `cutegen` chooses by itself for a layer of a model that decodes."""
    a, b, c = (Operand("f16", major) for major in "kkn")
    problem = Problem(a=a, b=b, c=c)
    found = planned(GemmSpec(problem=problem, name="decode"), (8, 6144, 4096))
    assert found.prefetched == (Prefetch("a", 4),)
    assert found.swapped
    assert [x.name for x in found.launch.parameters if x.type == "ptr"] == ["b"]


def test_what_is_given_stands() -> None:
    problem = (16, 8192, 8192)
    never = of_tile(64, 16, 256, schedule=NARROW, g2s=G2s(a=G2sCopy(prefetch=0)))
    found = planned(never, problem)
    assert found.prefetched == ()
    assert [(x.chosen, x.given) for x in found.decisions if x.key == "g2s.a.prefetch"] == [("none", True)]
    always = of_tile(64, 64, 64, g2s=G2s(a=G2sCopy(prefetch=1), b=G2sCopy(prefetch=3)))
    assert planned(always).prefetched == (Prefetch("a", 1), Prefetch("b", 3))


def test_the_spec_at_a_kernels_end_makes_the_same_kernel_without_the_problem() -> None:
    found = planned(of_tile(64, 16, 256, stages=5, schedule=NARROW), (16, 8192, 8192))
    again = planned(settled_spec(found))
    assert again.prefetched == found.prefetched == (Prefetch("a", 6),)
    assert again.launch == found.launch


@pytest.mark.parametrize("swap", [False, True])
def test_a_launch_passes_address_and_strides_beside_the_map(swap: bool) -> None:
    """In the order of a kernel without maps, and by the names that a call has: exchanged, the kernel's A is its B."""
    asked = of_tile(64, 64, 64, g2s=G2s(a=G2sCopy(prefetch=2)), schedule=Schedule(swap=swap))
    launch = planned(asked).launch
    name = "b" if swap else "a"
    maps = ["map_b", "map_a"] if swap else ["map_a", "map_b"]
    extents = ["n", "m", "k"] if swap else ["m", "n", "k"]
    expected = [*maps, "map_c", name, *extents, f"ld{name}", f"batch_stride_{name}"]
    assert [each.name for each in launch.parameters] == expected
    assert LaunchContract.from_json(launch.to_json()) == launch


def test_a_launch_that_does_not_pass_what_is_prefetched_is_refused() -> None:
    found = planned(of_tile(64, 64, 64, g2s=G2s(a=G2sCopy(prefetch=2))))
    launch, others = found.launch, ((), ("b",), ("a", "b"))
    for named in others:
        wrong = replace(launch, parameters=gemm_parameters(launch.tensors, launch.scalars, launch.maps, (), named))
        with pytest.raises(CutegenError, match="other addresses"):
            prove(replace(found, launch=wrong))


def test_ctas_that_share_copies_refuse_the_key() -> None:
    asked = of_tile(64, 64, 64, g2s=G2s(b=G2sCopy(prefetch=2)), schedule=Schedule(cluster=(2, 1)))
    with pytest.raises(SpecError, match=r"g2s\.b\.prefetch: found 2 in clusters of 2x1 tiles"):
        planned(asked)


def test_other_families_have_no_such_key() -> None:
    with pytest.raises(SpecError, match=r"g2s\.a\.prefetch"):
        plan(gemm(g2s=G2s(a=G2sCopy(prefetch=1))), "sm_80")
