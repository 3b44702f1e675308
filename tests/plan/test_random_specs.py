"""Any valid spec is planned and proved, or refused with words: nothing else ever happens, and it is quick."""

from __future__ import annotations

import time

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from cutegen.errors import SpecError
from cutegen.hardware import MMA_ATOMS, TARGETS, dtype
from cutegen.plan import GemmPlan, plan
from cutegen.plan.gemm_plan import plan_json
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    Operand,
    Problem,
    Raster,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
)

PLANNING_LIMIT_S = 0.5
LAYOUTS = [
    "(8,(8,8)):(8,(1,64))",
    "Sw<3,3,3> o (8,(8,8)):(8,(1,64))",
    "Sw<2,3,3> o (8,32):(32,1)",
    "Sw<3,2,3> o (8,64):(64,1)",
    "(8,32):(40,1)",
    "(32,8):(1,40)",
    "(16,16):(17,1)",
    "(8,8):(64,1)",
    "(8,12):(12,1)",
    "(1,1):(0,0)",
]


BESIDE = {"e4m3": ["e4m3", "e5m2"], "e5m2": ["e4m3", "e5m2"], "s8": ["s8", "u8"], "u8": ["s8", "u8"]}
SUMS = {"f16": ["f32", "f16"], "s8": ["s32"], "u8": ["s32"], "e4m3": ["f32", "f16"], "e5m2": ["f32", "f16"]}


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), strategy)


def operand(modes: str, dtypes: list[str]) -> st.SearchStrategy[Operand]:
    least = max(dtype(name).bytes for name in dtypes)
    aligns = maybe(st.sampled_from([align for align in (1, 2, 4, 8, 16, 32, 128) if align >= least]))
    return st.builds(Operand, st.sampled_from(dtypes), st.sampled_from(modes), aligns)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    element = draw(st.sampled_from(["f16", "bf16", "tf32", "s8", "u8", "e4m3", "e5m2"]))
    return Problem(
        a=draw(operand("mk", [element])),
        b=draw(operand("nk", BESIDE.get(element, [element]))),
        c=draw(
            st.sampled_from(["f16", "bf16", "f32", "s8", "u8", "s32", "e4m3"]).flatmap(lambda c: operand("mn", [c]))
        ),
        accumulator=draw(maybe(st.sampled_from(SUMS.get(element, ["f32"])))),
    )


extents = st.sampled_from([8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 256])
tiles = st.builds(Tile, cta=maybe(st.tuples(extents, extents, extents)), stages=maybe(st.integers(1, 8)))
warps = st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 1, 1, 2]))
any_mma = st.builds(
    Mma,
    atom=maybe(st.sampled_from(list(MMA_ATOMS))),
    atom_layout=maybe(warps),
    permutation=maybe(
        st.tuples(st.sampled_from([16, 32, 48, 64]), st.sampled_from([8, 16, 32, 64]), st.sampled_from([8, 16, 32, 64]))
    ),
)
mmas = st.one_of(st.just(Mma()), st.just(Mma(atom_layout=(2, 1, 1))), any_mma)  # most of any_mma are refused
smem_layouts = st.one_of(
    st.builds(SmemLayout),
    st.builds(SmemLayout, pad=st.integers(0, 16)),
    st.builds(SmemLayout, swizzle=st.tuples(st.integers(0, 3), st.integers(2, 4), st.just(3))),
    st.builds(SmemLayout, layout=st.sampled_from(LAYOUTS)),
)
copies = st.one_of(
    st.builds(G2sCopy, op=st.just("cp.async.ca"), bits=maybe(st.sampled_from([32, 64, 128]))),
    st.builds(G2sCopy, op=st.just("cp.async.cg")),
    st.builds(G2sCopy, op=st.just("universal"), bits=maybe(st.sampled_from([16, 32, 64, 128]))),
    st.builds(G2sCopy, threads=st.sampled_from(["(16,8):(8,1)", "(8,16):(1,8)", "(32,4):(4,1)", "(21,6):(6,1)"])),
)
LOADS = ["universal", "SM75_U32x4_LDSM_N", "SM75_U32x1_LDSM_N", "SM75_U16x8_LDSM_T", "SM100_U8x16_LDSM_T"]
loads = st.builds(S2rCopy, maybe(st.sampled_from(LOADS)))
rasters = st.builds(Raster, maybe(st.sampled_from("mn")), maybe(st.integers(1, 9)), maybe(st.booleans()))
specs = st.builds(
    GemmSpec,
    family=st.just("sm80"),
    problem=problems(),
    tile=tiles,
    mma=mmas,
    smem=st.builds(Smem, a=maybe(smem_layouts), b=maybe(smem_layouts)),
    g2s=st.builds(G2s, a=maybe(copies), b=maybe(copies)),
    s2r=st.builds(S2r, a=maybe(loads), b=maybe(loads)),
    epilogue=st.builds(Epilogue, maybe(st.one_of(st.just(False), smem_layouts))),
    schedule=st.builds(
        Schedule, maybe(rasters), maybe(st.integers(1, 64)), maybe(st.sampled_from(["workspace", "atomics"]))
    ),
    name=st.text(max_size=8),
)
BARE = Problem(a=Operand("f16", "k"), b=Operand("f16", "k"), c=Operand("f16", "n"))


# Not shrunk: a spec is short enough to read, and shrinking plans many hundred times.
QUICK = settings(deadline=None, max_examples=80, phases=[Phase.explicit, Phase.reuse, Phase.generate])


def planned(spec: GemmSpec, target: str, problem: tuple[int, int, int] | None = None) -> GemmPlan | SpecError:
    try:
        return plan(spec, target, problem)
    except SpecError as error:
        return error


@QUICK
@given(specs, st.sampled_from(list(TARGETS)))
@example(GemmSpec(family="sm80", problem=BARE, tile=Tile(cta=(256, 256, 256))), "sm_80")
@example(GemmSpec(family="sm80", problem=BARE, tile=Tile(cta=(16, 8, 16))), "sm_80")
@example(GemmSpec(family="sm80", problem=BARE, tile=Tile(cta=(8192, 16, 32))), "sm_80")
def test_planned_and_proved_or_refused(spec: GemmSpec, target: str) -> None:
    found = planned(spec, target)
    if isinstance(found, SpecError):
        assert found.key
        assert found.found
        assert found.expected
        assert "\n" not in str(found)
        return
    assert found.smem_bytes <= found.target.smem_per_cta_bytes
    assert found.predictions.occupancy.ctas_per_sm >= 1
    assert plan_json(found)
    assert found.explain(everything=True)
    assert all(decision.chosen and decision.why for decision in found.decisions)
    assert all(rejected.what and rejected.why for decision in found.decisions for rejected in decision.rejected)


@QUICK
@given(problems(), tiles)
def test_what_is_left_open_finds_a_plan(problem: Problem, tile: Tile) -> None:
    """With nothing but a problem and a tile, only the tile can be refused, or a sum that no tensor core has."""
    found = planned(GemmSpec(family="sm80", problem=problem, tile=tile), "sm_89")
    if isinstance(found, SpecError):
        assert found.key in ("tile.cta", "tile.stages", "problem.accumulator")


@pytest.mark.parametrize("cta", [(64, 64, 32), (128, 128, 64), (256, 128, 64), (128, 256, 32)], ids=str)
def test_planning_is_quick(cta: tuple[int, int, int]) -> None:
    spec = GemmSpec(family="sm80", problem=BARE, tile=Tile(cta=cta))
    times = []
    for _ in range(3):
        start = time.process_time()
        plan(spec, "sm_80")
        times.append(time.process_time() - start)
    assert min(times) < PLANNING_LIMIT_S
