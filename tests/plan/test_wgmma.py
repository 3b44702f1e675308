"""Family sm90: what the rules choose, what they refuse with which way out, and what the proof holds against a plan."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import ProofError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.accumulator import PROMOTED_TILES, Promotion
from cutegen.plan.kernel.program import Action
from cutegen.plan.prove import prove
from cutegen.plan.values.fragments import ByDescriptor
from cutegen.show.parts.partitions import partitions
from cutegen.spec import Epilogue, GemmSpec, Grouped, Mma, S2r, S2rCopy, Schedule, Smem, SmemLayout, Tile
from tests.plan.changed import with_path, with_region
from tests.plan.specs import gemm


def wgmma(*args: Any, cta: tuple[int, int, int] | None = None, **parts: Any) -> GemmSpec:
    if cta is not None:
        parts["tile"] = Tile(cta=cta)
    return replace(gemm(*args), family="sm90", **parts)


def grouped() -> GemmSpec:
    """Groups of rows, which family "sm120" does not have."""
    spec = wgmma()
    return replace(spec, problem=replace(spec.problem, groups=Grouped("m")))


def planned(spec: GemmSpec) -> GemmPlan:
    found = plan(spec, "sm_90")
    assert isinstance(found, GemmPlan)
    return found


def described(found: GemmPlan) -> tuple[ByDescriptor, ByDescriptor]:
    a, b = (x.s2r.described for x in found.operands)
    assert a is not None
    assert b is not None
    return a, b


def test_left_alone_it_is_cutlasss_cooperative_kernel() -> None:
    found = planned(wgmma())
    assert (found.cta_tile, found.atoms_mnk, found.atoms_are) == ((128, 256, 64), (2, 1, 1), "warpgroups")
    assert found.atom.name == "SM90_64x256x16_F32F16F16_SS"
    assert found.threads == 3 * 128
    assert found.stages == 4
    # The same constant stands in the PTX of CUTLASS's CuTe DSL example for 128 swizzled bytes along K.
    assert [source.first.encode() for source in described(found)] == [0x4000_0040_0001_0000] * 2


@pytest.mark.parametrize("majors", ["kkn", "mkn", "knn", "mnn", "kkm", "mnm"])
@pytest.mark.parametrize("cta", [(128, 256, 64), (64, 64, 64), (256, 128, 32), (192, 96, 64), (64, 24, 16)])
def test_every_major_of_every_tile_is_planned_and_proved(majors: str, cta: tuple[int, int, int]) -> None:
    found = planned(wgmma(majors, cta=cta))
    assert not any(x.s2r.in_registers for x in found.operands)
    assert not {"s2r.a", "s2r.b"} & found.predictions.wavefronts.keys()


@pytest.mark.parametrize(
    ("dtype", "c_dtype", "k", "atom"),
    [
        ("bf16", "bf16", 64, "SM90_64x128x16_F32BF16BF16_SS"),
        ("e4m3", "f16", 128, "SM90_64x128x32_F32E4M3E4M3_SS_TN"),
        ("s8", "s32", 128, "SM90_64x128x32_S32S8S8_SS_TN_SATURATE"),
        ("u8", "u8", 128, "SM90_64x128x32_S32U8U8_SS_TN_SATURATE"),
    ],
)
def test_element_types(dtype: str, c_dtype: str, k: int, atom: str) -> None:
    spec = replace(gemm(dtype=dtype, c_dtype=c_dtype), family="sm90", tile=Tile(cta=(128, 128, k)))
    assert planned(spec).atom.name == atom


@pytest.mark.parametrize(
    ("cta", "layout", "registers"),
    [
        ((64, 64, 64), (1, 1, 1), None),
        ((128, 128, 64), (2, 1, 1), (232, 40)),
        ((256, 192, 64), (2, 1, 1), (232, 40)),
        ((256, 200, 64), (2, 1, 1), (232, 40)),
        ((256, 208, 64), (2, 1, 1), (240, 24)),
        ((192, 128, 64), (3, 1, 1), (152, 40)),
    ],
)
def test_registers_go_to_those_that_multiply(
    cta: tuple[int, int, int], layout: tuple[int, int, int], registers: tuple[int, int] | None
) -> None:
    """By `setmaxnreg`, in eights, out of the 65,536 of a multiprocessor; one warpgroup beside the copies has 255."""
    mma, producer, idle = planned(wgmma(cta=cta, mma=Mma(atom_layout=layout))).roles
    assert (mma.registers, producer.registers) == (registers or (None, None))
    assert producer.registers == idle.registers
    if mma.registers is not None and producer.registers is not None:
        assert 128 * (mma.registers * layout[0] + producer.registers) <= 65536


def test_sectors_of_shared_copies_and_of_all_parts_by_hand() -> None:
    """Rows of 128 bytes are 4 sectors: 128 of A, of B half of 256, of C 128 in 4 parts of a line."""
    sectors = planned(wgmma(cta=(128, 256, 64), schedule=Schedule(cluster=(2, 1)))).predictions.sectors
    found = {key: (each.ideal, each.predicted) for key, each in sectors.items()}
    assert found == {"g2s.a": (512, 512), "g2s.b": (512, 512), "epilogue": (2048, 2048)}


def test_who_answers_for_the_registers_of_a_kernel() -> None:
    """A build with registers that spill is refused if cutegen chose them: both the tile and its warpgroups."""
    assert planned(wgmma()).tile_is_chosen
    assert not planned(wgmma(cta=(128, 128, 64))).tile_is_chosen
    assert not planned(wgmma(mma=Mma(atom_layout=(2, 1, 1)))).tile_is_chosen


def test_one_warpgroup_beside_the_copies_has_all_registers_that_an_instruction_can_address() -> None:
    """255, of which 32 are for other things; two rows of C for each of 128 threads."""
    assert planned(wgmma(cta=(128, 216, 64), mma=Mma(atom_layout=(1, 1, 1)))).threads == 256
    with pytest.raises(SpecError, match="224 registers per thread for sums; expected at most 223"):
        planned(wgmma(cta=(128, 224, 64), mma=Mma(atom_layout=(1, 1, 1))))


def test_promoted_sums_in_two_sets_want_the_registers_of_three() -> None:
    """68 sums for each thread, three times, and 32 others are 236: more than the 232 beside producers with 40."""
    of_bytes = replace(gemm(dtype="e4m3", c_dtype="f16"), family="sm90", tile=Tile((128, 136, 128)))
    found = planned(of_bytes)
    assert found.mma.accumulator.promotion == Promotion(128, 2, staggered=True, k_tiles_per_turn=PROMOTED_TILES)
    assert found.mma.accumulator.registers == 3 * 68
    assert [role.registers for role in found.roles] == [240, 24, 24]


def test_a_stage_is_released_when_the_next_is_being_multiplied() -> None:
    loop = planned(wgmma()).loop
    assert loop.executed(Action.MULTIPLY, 7).total == 7
    assert loop.executed(Action.RELEASE, 7).total == 7
    assert loop.executed(Action.MMA_COMMIT, 7).total == 7
    for k_tiles in (0, 1):  # of an empty K one k-tile of zeros is multiplied
        assert loop.executed(Action.MULTIPLY, k_tiles).total == 1
    turns = [each for each in loop.main.ranges if each.name == "turn"]
    assert len(turns) == 2, "alike, and in turns"
    for turn in turns:
        released = [step.ahead for step in turn.steps if step.action is Action.RELEASE]
        pending = [step.pending for step in turn.steps if step.action is Action.MMA_WAIT]
        assert (released, pending) == ([-1], [1])


def test_descriptors_step_as_the_dsl_has_them() -> None:
    """In units of 16 bytes: 32 bytes for a k-block, 16 KiB for a stage of A and 32 KiB of B, as in the DSL's PTX."""
    layouts = partitions(planned(wgmma()), ProblemShape(128, 256, 256), 0)
    assert str(layouts["tCrA"]).replace(" ", "") == "((1,1,4,(1,4)):(0,0,2,(0,1024)))"[1:-1]
    assert str(layouts["tCrB"]).replace(" ", "") == "((1,1,4,(1,4)):(0,0,2,(0,2048)))"[1:-1]
    assert not {"tXsA", "tXrA", "ca.get_layoutS_TV()"} & layouts.keys()


CASES: dict[str, tuple[GemmSpec, str, str, tuple[str, ...]]] = {
    "sm_80": (wgmma(), "sm_80", "family", ("sm_90, which has wgmma", '--arch sm_90, or family = "sm80"')),
    "sm_100": (wgmma(), "sm_100", "family", ("sm_90, which has wgmma", 'family = "sm120"')),
    "groups on sm_100": (grouped(), "sm_100", "family", ('family = "sm80"',)),
    "tf32": (
        replace(gemm(dtype="tf32"), family="sm90"),
        "sm_90",
        "problem.a.dtype",
        ('"tf32"', 'family = "sm120" multiplies by mma.sync'),
    ),
    "8 bits along m": (
        replace(gemm("mkn", dtype="e4m3", c_dtype="f16"), family="sm90"),
        "sm_90",
        "problem.a.major",
        ('"m" with e4m3', "only K-major", 'major = "k"', 'family = "sm80"'),
    ),
    "8 bits along n": (
        replace(gemm("knn", dtype="s8"), family="sm90"),
        "sm_90",
        "problem.b.major",
        ('"n" with s8', 'transposed = "once"'),
    ),
    "an operand aligned to half of what a tensor map takes": (
        replace(gemm(align=(None, 8, None)), family="sm90"),
        "sm_90",
        "problem.b.align",
        ("found 8", "a multiple of 16", 'family = "sm80"'),
    ),
    "types that do not mix": (
        replace(gemm(dtype="f16", b_dtype="bf16"), family="sm90"),
        "sm_90",
        "problem.b.dtype",
        ('"bf16"', "f16 with A's f16"),
    ),
    "one stage": (wgmma(tile=Tile(stages=1)), "sm_90", "tile.stages", ("found 1", "2 or more", "tile.stages = 2")),
    "rows that no wgmma has": (wgmma(cta=(96, 64, 64)), "sm_90", "tile.cta", ("M a multiple of 64", "M = 128")),
    "columns that no wgmma has": (
        wgmma(cta=(128, 260, 64)),
        "sm_90",
        "tile.cta",
        ("N = 260", "8 to 256 in steps"),
    ),
    "a k-tile of no whole wgmma": (wgmma(cta=(64, 64, 40)), "sm_90", "tile.cta", ("K = 40", "16", "K = 32")),
    "warps instead of warpgroups": (
        wgmma(mma=Mma(atom_layout=(2, 4, 1))),
        "sm_90",
        "mma.atom_layout",
        ("2x4x1 warpgroups", "1, 2 or 3 warpgroups", "not warps", "2x1x1"),
    ),
    "warpgroups that rows do not fill": (
        wgmma(cta=(192, 64, 64), mma=Mma(atom_layout=(2, 1, 1))),
        "sm_90",
        "mma.atom_layout",
        ("2 warpgroups along M of 192x64x64", "a divisor of the CTA tile's M = 192, in units of 64"),
    ),
    "sums that do not fit": (
        wgmma(cta=(256, 256, 64)),
        "sm_90",
        "tile.cta",
        ("256 registers per thread for sums", "at most 208", "smaller tile"),
    ),
    "an atom of another width": (
        wgmma(cta=(128, 128, 64), mma=Mma(atom="SM90_64x256x16_F32F16F16_SS")),
        "sm_90",
        "mma.atom",
        ("N = 128", "SM90_64x128x16_F32F16F16_SS", "N = 256"),
    ),
    "an atom of another width for two side by side": (
        wgmma(cta=(64, 128, 64), mma=Mma(atom="SM90_64x96x16_F32F16F16_SS", atom_layout=(1, 2, 1))),
        "sm_90",
        "mma.atom",
        ("N = 64", "SM90_64x64x16_F32F16F16_SS", "a tile.cta with N = 192"),
    ),
    "A in registers": (
        wgmma(mma=Mma(atom="SM90_64x256x16_F32F16F16_RS")),
        "sm_90",
        "mma.atom",
        ("reads A from shared memory", "SM90_64x256x16_F32F16F16_SS"),
    ),
    "a pad": (
        wgmma(smem=Smem(a=SmemLayout(pad=8))),
        "sm_90",
        "smem.a",
        ("pad 8: no matrix descriptor", "Layout_K_SW128_Atom", "swizzle = [3, 3, 3]", "sm120"),
    ),
    "a swizzle that no descriptor has": (
        wgmma(smem=Smem(a=SmemLayout(swizzle=(2, 3, 4)))),
        "sm_90",
        "smem.a",
        ("no matrix descriptor", "Layout_K_SW128_Atom"),
    ),
    "C that does not fit": (
        wgmma(tile=Tile(cta=(128, 256, 64), stages=4), epilogue=Epilogue(smem=SmemLayout(pad=8))),
        "sm_90",
        "epilogue.smem",
        ("pad 8", "tensor map"),
    ),
    "slices added by atomics": (
        wgmma(schedule=Schedule(split_k=4, reduction="atomics")),
        "sm_90",
        "schedule.reduction",
        ('"atomics"', "bulk tensor stores do not add to C"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_is_refused_with_a_way_out(name: str) -> None:
    spec, arch, key, texts = CASES[name]
    with pytest.raises(SpecError) as caught:
        plan(spec, arch)
    assert caught.value.key == key
    for text in texts:
        assert text in str(caught.value)


def test_an_atom_of_other_types_is_not_told_of_a_width_that_it_has() -> None:
    asked = wgmma(cta=(128, 128, 64), mma=Mma(atom="SM90_64x128x16_F32BF16BF16_SS"))
    with pytest.raises(SpecError, match="expected an atom for f16 operands and f32 sums") as caught:
        plan(asked, "sm_90")
    assert caught.value.fix == "use SM90_64x128x16_F32F16F16_SS"


@pytest.mark.parametrize("name", ["8 bits along m", "8 bits along n"])
def test_the_family_that_a_refusal_names_takes_it(name: str) -> None:
    spec, arch, _, _ = CASES[name]
    with pytest.raises(SpecError) as caught:
        plan(spec, arch)
    (family,) = re.findall(r'family = "(\w+)"', caught.value.fix)
    assert planned(replace(spec, family=family)).family == family


@pytest.mark.parametrize("dtype", ["s8", "e4m3"])
def test_a_copy_that_would_turn_bytes_the_wrong_way_is_what_is_refused(dtype: str) -> None:
    """B lies as wgmma reads it: the copy is to be left out, and no major is to be changed."""
    asked = replace(gemm(dtype=dtype, c_dtype="f32"), family="sm90")
    turned = replace(asked, problem=replace(asked.problem, b=replace(asked.problem.b, transposed="once")))
    with pytest.raises(SpecError) as caught:
        plan(turned, "sm_90")
    assert caught.value.key == "problem.b.transposed"
    assert caught.value.found == '"once", so that B, K-major, is read as "n"'
    assert caught.value.expected == '"k": wgmma reads 8-bit operands only K-major'
    assert caught.value.fix == "leave transposed out"
    assert planned(asked).family == "sm90"


def test_keys_of_copies_to_registers_name_the_family_that_has_them() -> None:
    with pytest.raises(SpecError, match=r'leave s2r\.a\.atom out, or family = "sm120"'):
        wgmma(s2r=S2r(a=S2rCopy("SM75_U32x4_LDSM_N")))
    with pytest.raises(SpecError, match=r'family = "sm120" multiplies by mma\.sync'):
        wgmma(mma=Mma(atom="SM80_16x8x16_F32F16F16F32_TN"))


@pytest.mark.parametrize(
    ("asked", "layout", "boxes"),
    [
        (SmemLayout(swizzle=(3, 3, 3)), "Layout_K_SW128_Atom", 1),
        (SmemLayout(swizzle=(2, 3, 3)), "Layout_K_SW64_Atom", 2),
        (SmemLayout(layout="Sw<3,3,3> o (8,64):(64,1)"), "Layout_K_SW128_Atom", 1),
        (SmemLayout(layout="Sw<1,3,3> o (8,16):(16,1)"), "Layout_K_SW32_Atom", 4),
        (SmemLayout(layout="(8,8):(8,1)"), "Layout_K_INTER_Atom", 8),
        (SmemLayout(swizzle=(0, 3, 3)), "Layout_K_INTER_Atom", 8),
    ],
)
def test_a_layout_that_has_a_descriptor_is_obeyed(asked: SmemLayout, layout: str, boxes: int) -> None:
    found = planned(wgmma(smem=Smem(a=asked)))
    assert described(found)[0].layout.name == layout
    assert (found.a.g2s.boxes_issued, found.b.smem.chosen.name) == (
        {found.a.g2s.atom.ptx: boxes},
        "Layout_K_SW128_Atom",
    )


@pytest.mark.parametrize(("columns", "sums"), [(256, 128), (208, 104)])
def test_the_sums_of_one_instruction_fit_what_threads_have_at_launch(columns: int, sums: int) -> None:
    """512 threads have 128 registers each, of which ptxas wants 26 for other things (C7602, as compiled for sm_90a)."""
    with pytest.raises(SpecError) as caught:
        planned(wgmma(cta=(192, columns, 64), mma=Mma(atom_layout=(3, 1, 1))))
    assert f"{sums} registers for one wgmma's sums; expected at most 102" in str(caught.value)
    assert "200 columns per warpgroup" in str(caught.value)
    assert planned(wgmma(cta=(192, 200, 64), mma=Mma(atom_layout=(3, 1, 1)))).threads == 512


def test_rows_of_boxes_end_where_those_of_an_instruction_do() -> None:
    """Two warpgroups along N have 96 columns each of a B that is contiguous along N: no whole number of 128 bytes."""
    found = planned(wgmma("knn", cta=(64, 192, 64), mma=Mma(atom_layout=(1, 2, 1))))
    _, b = described(found)
    assert b.layout.name == "Layout_MN_SW64_Atom"
    (decision,) = (x for x in found.decisions if x.key == "smem.b")
    rejected = {x.what: x.why for x in decision.rejected}
    assert "no matrix descriptor" in rejected["Layout_MN_SW128_Atom"]


def broken(found: GemmPlan, what: str) -> GemmPlan:
    """The plan with one field that is wrong."""
    source, parts = described(found)[0], found.epilogue.parts
    assert parts is not None
    first = source.first
    if what == "stride offset":
        return with_path(found, "a", s2r=replace(source, first=replace(first, sbo_bytes=512)))
    if what == "start":
        return with_path(found, "a", s2r=replace(source, first=first.advanced(2)))
    if what == "columns of parts":
        return replace(found, epilogue=replace(found.epilogue, parts=replace(parts, columns=parts.columns // 2)))
    stmatrix = replace(parts.stmatrix, transpose=True)  # type: ignore[type-var]
    return replace(found, epilogue=replace(found.epilogue, parts=replace(parts, stmatrix=stmatrix)))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("stride offset", "s2r.a does not read where the layout says"),
        ("start", "s2r.a does not read where the layout says"),
        ("columns of parts", "a part of C does not match the order"),
        ("stmatrix", "stmatrix stores rows that are not contiguous"),
    ],
)
def test_the_proof_finds_a_plan_that_is_wrong(what: str, message: str) -> None:
    found = planned(wgmma(cta=(256, 128, 64)))
    prove(found)
    with pytest.raises(ProofError, match=message):
        prove(broken(found, what))


def test_the_flag_of_the_cta_that_adds_is_within_shared_memory() -> None:
    found = planned(wgmma(cta=(128, 128, 64), schedule=Schedule(split_k=2, cluster=(1, 1))))
    assert found.split_k is not None
    assert found.split_k.leaves_sums
    prove(found)
    of_stages = 8 * 2 * found.stages
    with pytest.raises(ProofError, match=f"{of_stages} bytes of shared memory of barriers are too few"):
        prove(with_region(found, "barriers", bytes=of_stages))


def test_for_a_problem_the_tile_leaves_no_multiprocessor_idle() -> None:
    """At 1024 x 1024 x 1024 the large tile occupies 32 of 132 multiprocessors, and takes 1.8 times as long."""
    small, large = (plan(wgmma(), "sm_90", (x, x, x)) for x in (1024, 4096))
    assert isinstance(small, GemmPlan)
    assert isinstance(large, GemmPlan)
    assert small.cta_tile[:2] in ((128, 64), (64, 128))
    assert math.prod(large.cta_tile[:2]) > 1.5 * math.prod(small.cta_tile[:2])
