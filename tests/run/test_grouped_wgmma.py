"""Kernels of groups by wgmma on the CPU executor: types, majors, tiles, clusters, ping-pong, swap, and wrong kernels.

Cases and comparisons are those of `tests/run/test_grouped_kernels.py`, with room for several tiles of 64 and 128 rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.errors import ProofError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.pipeline import Turns
from cutegen.plan.prove import prove
from cutegen.run import Kernel
from cutegen.spec import Epilogue, Factors, GemmSpec, Grouped, Mma, Operand, Paired, Problem, Quantized, Schedule, Tile
from tests.run.test_grouped_kernels import Extents, assert_whole_tiles_are_counted, failure, failures

ARCHES = {"sm90": "sm_90a", "sm100": "sm_100a"}
PACKED = Extents(room=200, m=72, n=160, k=104, tile=(64, 128))
PARTS_OF_K = Extents(room=200, m=72, n=72, k=200, tile=(64,))
PADDED = Extents(room=70, m=40, n=72, k=72, tile=(64,))
BLOCKS = Extents(room=200, m=72, n=160, k=272, tile=(64, 128))
ATOMS = Extents(room=300, m=72, n=160, k=272, tile=(64, 128, 192))
PADDED_BLOCKS = Extents(room=136, m=40, n=72, k=144, tile=(64,))


@dataclass(frozen=True, slots=True)
class Setting:
    """A kernel of groups: the grouped mode of a call, types, majors of A, B and C, the tile, the epilogue's ops.

    `rows` are those of the blocks of A and B with a factor each, `atoms` factors of 8 bits of both.
    """

    of: str
    layout: str = "packed"
    types: tuple[str, str] = ("bf16", "bf16")
    majors: str = "kkn"
    tile: tuple[int, int, int] = (128, 128, 64)
    ops: tuple[str, ...] = ()
    align: int | None = None
    expression: str | None = None
    pairs: Paired | None = None
    rows: tuple[int, int] | None = None
    atoms: Factors | None = None
    quantize: Quantized | None = None
    schedule: Schedule = field(default_factory=Schedule)
    family: str = "sm90"
    cta_group: int | None = None

    @property
    def among(self) -> Extents:
        if self.layout == "padded":
            return PADDED_BLOCKS if self.rows or self.atoms else PADDED
        if self.atoms:
            return ATOMS
        if self.rows:
            return BLOCKS
        return PACKED if self.of != "k" else PARTS_OF_K

    def spec(self) -> GemmSpec:
        (element, of_c), (a, b, c) = self.types, self.majors
        of_a, of_b = (Factors((rows, 128)) for rows in self.rows) if self.rows else (self.atoms, self.atoms)
        problem = Problem(
            a=Operand(element, a),
            b=Operand(element, b),
            c=Operand(of_c, c, self.align),
            scale_a=of_a,
            scale_b=of_b,
            groups=Grouped(self.of, self.layout),  # type: ignore[arg-type]
        )
        return GemmSpec(
            family=self.family,
            problem=problem,
            tile=Tile(self.tile),
            mma=Mma(cta_group=self.cta_group),
            epilogue=Epilogue(
                ops=self.ops or None, expression=self.expression, pairs=self.pairs, quantize=self.quantize
            ),
            schedule=self.schedule,
            name=f"grouped_{self.of}",
        )


QUICK = (
    Setting("m", ops=("bias_n", "relu"), tile=(128, 64, 64)),
    Setting("m", "padded", ("f16", "f32"), "knn", tile=(64, 64, 64)),
    Setting("k", types=("bf16", "f32"), majors="mnn", tile=(64, 64, 64)),
)
FP8 = ("e4m3", "f32")
SCALED = Setting("m", types=("e4m3", "bf16"), tile=(64, 96, 128), rows=(1, 128))
SWIGLU = "x, y -> silu(x) * y"
QUANTIZED = Setting("m", types=("e4m3", "e4m3"), tile=(64, 128, 128), rows=(1, 128), quantize=Quantized("e4m3"))
ROWS_TOGETHER = Setting("m", majors="mkn", tile=(128, 64, 64))
COLUMNS_TOGETHER = Setting("n", majors="knn", tile=(64, 64, 64))
CLUSTERED = Setting("m", tile=(64, 64, 64), schedule=Schedule(cluster=(1, 2)))
MORE = (
    Setting("m", expression=SWIGLU, pairs=Paired("halves", "gate")),
    Setting("m", majors="knn", expression=SWIGLU, pairs=Paired(16, "up"), tile=(64, 128, 64)),
    Setting("m", "padded", ("f16", "f16"), expression=SWIGLU, pairs=Paired("interleaved", "up"), tile=(128, 64, 64)),
    Setting(
        "m", expression=SWIGLU, pairs=Paired("interleaved", "gate"), schedule=Schedule(swap=True), tile=(128, 16, 64)
    ),
    Setting(
        "m", "padded", expression=SWIGLU, pairs=Paired("halves", "up"), schedule=Schedule(swap=True), tile=(256, 8, 64)
    ),
    Setting("m", types=("f16", "f32"), ops=("bias_n", "gelu_erf")),
    Setting("m", majors="knn", ops=("bias_m", "scale_n", "residual", "aux")),
    Setting("m", "padded", ("f16", "f16"), ops=("bias_n", "beta")),
    Setting("m", majors="kkm"),
    Setting("m", types=("s8", "s32"), tile=(64, 64, 128)),
    Setting("m", types=("e4m3", "bf16"), tile=(128, 64, 128), ops=("scale_n",)),
    Setting("m", types=("e5m2", "f32"), tile=(128, 128, 128)),
    SCALED,
    QUANTIZED,
    Setting("m", "padded", ("bf16", "e4m3"), ops=("bias_n",), quantize=Quantized("e4m3", "ue8m0")),
    Setting("m", types=FP8, tile=(128, 128, 128), rows=(1, 1), ops=("bias_n",)),
    Setting("m", "padded", FP8, tile=(64, 64, 128), rows=(128, 128)),
    Setting("m", "padded", FP8, tile=(64, 96, 128), rows=(1, 128), schedule=Schedule(consumers="pingpong")),
    Setting("m", types=FP8, tile=(64, 32, 128), rows=(1, 128), schedule=Schedule(swap=True)),
    Setting("m", types=FP8, tile=(64, 64, 128), rows=(1, 128), schedule=Schedule(cluster=(1, 2))),
    Setting("n", types=FP8, majors="kkm", tile=(64, 64, 128), rows=(128, 1)),
    Setting("m", tile=(64, 128, 64), schedule=Schedule(consumers="pingpong")),
    Setting("m", tile=(64, 128, 64), ops=("silu",), schedule=Schedule(consumers="pingpong", programmatic=True)),
    Setting("m", tile=(128, 256, 64)),
    Setting("m", tile=(128, 64, 64), schedule=Schedule(consumers="pingpong")),
    Setting("m", tile=(256, 64, 64), ops=("bias_n",)),
    Setting("m", "padded", tile=(256, 128, 64)),
    Setting("m", types=("f16", "f32"), tile=(192, 64, 64), schedule=Schedule(consumers="pingpong", cluster=(1, 2))),
    Setting("n", majors="kkm", tile=(128, 32, 64), schedule=Schedule(swap=True, consumers="pingpong")),
    Setting("m", "padded", schedule=Schedule(swap=True, programmatic="weights"), tile=(64, 16, 64)),
    Setting("m", align=2),
    Setting("m", majors="kkm", align=2, ops=("residual",)),
    CLUSTERED,
    Setting("m", ops=("bias_n",), schedule=Schedule(swap=True), tile=(128, 16, 64)),
    Setting("m", "padded", schedule=Schedule(swap=True), tile=(64, 32, 64)),
    Setting("m", schedule=Schedule(swap=True, cluster=(2, 1)), tile=(64, 8, 128)),
    Setting("n", majors="kkm", tile=(64, 32, 64)),
    ROWS_TOGETHER,
    Setting("m", majors="mnn", tile=(64, 64, 64), ops=("bias_m", "scale_n"), schedule=Schedule(consumers="pingpong")),
    Setting("m", majors="mkm", types=("f16", "f32"), tile=(128, 64, 64)),
    Setting("m", majors="mkn", tile=(128, 32, 64), ops=("bias_n",), schedule=Schedule(swap=True)),
    Setting("m", majors="mkn", tile=(64, 64, 64), ops=("residual",), schedule=Schedule(cluster=(1, 2))),
    Setting("m", majors="mkn", expression=SWIGLU, pairs=Paired("halves", "gate"), tile=(64, 128, 64)),
    COLUMNS_TOGETHER,
    Setting("n", majors="mnm", tile=(64, 64, 64)),
    Setting("k", majors="kkn", types=("f16", "f16"), tile=(128, 64, 64)),
    Setting("k", majors="mnn", tile=(128, 128, 64), ops=("beta", "bias_n")),
    Setting("k", majors="mkm", tile=(64, 128, 64), schedule=Schedule(cluster=(1, 2))),
    Setting("k", types=("s8", "s32"), tile=(64, 64, 128)),
    Setting("k", types=("e4m3", "f32"), tile=(128, 64, 128)),
    Setting("k", types=("e5m2", "bf16"), tile=(64, 64, 64), ops=("scale_m",)),
    Setting("k", types=("e4m3", "f32"), tile=(128, 128, 128), majors="kkm", schedule=Schedule(swap=True)),
    Setting("k", types=("e4m3", "f32"), tile=(64, 64, 128), schedule=Schedule(consumers="pingpong")),
    Setting("k", majors="mnn", tile=(64, 64, 64), schedule=Schedule(consumers="pingpong")),
    Setting("k", tile=(64, 64, 64), ops=("beta",), schedule=Schedule(consumers="pingpong", cluster=(2, 1))),
    Setting("n", "padded", ("f16", "f16"), "mkm", tile=(64, 64, 64), ops=("bias_m", "scale_m")),
)


def compiled(setting: Setting, kernels: Cache) -> tuple[GemmPlan, Kernel]:
    planned = plan(setting.spec(), ARCHES[setting.family])
    assert isinstance(planned, GemmPlan)
    artifact = build(request_of(planned), kernels)
    assert artifact.manifest.warnings == ()  # emitted as predicted
    return planned, Kernel(artifact)


@pytest.mark.dsl
@pytest.mark.parametrize("setting", QUICK, ids=str)
def test_groups_are_right_for_any_ends(setting: Setting, kernels: Cache) -> None:
    assert list(failures(*compiled(setting, kernels), 3, setting.among)) == []


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", [*QUICK, *MORE], ids=str)
def test_many_groups_are_right_for_any_ends(setting: Setting, kernels: Cache) -> None:
    launches = 4 if setting.of == "k" else 12  # each of 300 parts of K has all tiles of its C
    assert list(failures(*compiled(setting, kernels), launches, setting.among)) == []


@pytest.mark.dsl
@pytest.mark.slow
def test_whole_tiles_of_padded_groups_are_counted_as_predicted(kernels: Cache) -> None:
    """Sizes are read once more at the end, as in family `sm80`."""
    asked = Setting("m", "padded", ("f16", "f32"), tile=(128, 32, 64), ops=("residual",))
    assert_whole_tiles_are_counted(*compiled(replace(asked, schedule=Schedule(consumers="pingpong")), kernels))


def fails_with_many_groups(planned: GemmPlan, kernel: Kernel, among: Extents) -> str:
    """Return what is wrong with 300 groups, of which a hundred have two rows each."""
    sizes = np.random.default_rng(60).permutation([2, 0, 0] * 100)
    return failure(planned, kernel, np.cumsum(sizes, dtype=np.int32), 60, fresh=False, among=among)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("room", [200, 700], ids=["all in turns", "some together"])
def test_parts_of_k_end_in_turns(room: int, kernels: Cache) -> None:
    """A part has more k-tiles than stages, or not: the first warpgroup stores C while the second multiplies."""
    planned, kernel = compiled(LAST_IN_TURN, kernels)
    assert planned.mma.role.turns is Turns.LAST_K_TILES
    assert list(failures(planned, kernel, 4, Extents(room=room, m=136, n=264, k=room))) == []


@pytest.mark.dsl
def test_three_hundred_groups_are_right(kernels: Cache) -> None:
    assert fails_with_many_groups(*compiled(QUICK[0], kernels), PACKED) == ""


BIASED, PARTS = QUICK[0], QUICK[2]
REST_FENCE = """        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=REST_BARRIER"""
PROMOTED = Setting("k", types=("e4m3", "f32"), tile=(64, 64, 128))
ANYWHERE = Setting("k", types=("f16", "f16"), tile=(64, 64, 64))
IN_TURN = Setting("k", tile=(64, 64, 64), schedule=Schedule(consumers="pingpong"))
LAST_IN_TURN = Setting("k", majors="mnn", tile=(128, 256, 64))
WIDE = Setting("m", tile=(128, 64, 64))
TWO_CTAS = Setting("m", tile=(64, 64, 64), schedule=Schedule(cluster=(1, 2)))
PLANTED: dict[str, tuple[Setting, str, str]] = {
    "factors of rows that no group has are left": (QUANTIZED, "mFactors[row, block] = Float32(0.0)", "pass"),
    "factors of a group begin where those of C do": (
        QUANTIZED,
        "mScaleC = cute.domain_offset((begin, 0),",
        "mScaleC = cute.domain_offset((0, 0),",
    ),
    "an end is clamped to one row too many": (
        BIASED,
        "cutlass.min(ends[first_group + lane], room)",
        "cutlass.min(ends[first_group + lane], room + 1)",
    ),
    "an end may lie before that of an earlier lane": (
        BIASED,
        "end = cutlass.max(end, cute.arch.shuffle_sync_up(end, distance))",
        "pass",
    ),
    "only the first 32 groups have tiles": (BIASED, "first_group + 32 < groups", "first_group < 0"),
    "only the last group of 32 is right": (BIASED, "first_tiles <= tile)) - 1", "first_tiles >= 0)) - 1"),
    "tiles of a group are numbered over all groups": (
        BIASED,
        "tile - cute.arch.shuffle_sync(first_tiles, lane)",
        "tile",
    ),
    "the last rows of a group are stored in bulk": (BIASED, "if (part_m + 1) * PART_M <= m:", "if m > 0:"),
    "vectors of another group's rows are stored": (
        BIASED,
        "tDcC[last, i, j], extent",
        "tDcC[last, i, j], (extent[0] + 1, extent[1])",
    ),
    "boxes of A begin where A does": (
        BIASED,
        "domain_offset((begin, 0, 0), map_coordinates((room, k",
        "domain_offset((0, 0, 0), map_coordinates((room, k",
    ),
    "boxes of C begin where C does": (
        BIASED,
        "domain_offset((begin, 0, 0), map_coordinates((room, n",
        "domain_offset((0, 0, 0), map_coordinates((room, n",
    ),
    "a bias of the first group is that of all": (
        BIASED,
        "batch_stride_bias, batch, batches)",
        "batch_stride_bias, 0, batches)",
    ),
    "the weights are those of the first group": (BIASED, "k_tile, batch]", "k_tile, 0]"),
    "what follows a part of K is multiplied": (
        PARTS,
        "rest = cutlass.max(cute.ceil_div(k, CTA_K), 1), k % CTA_K",
        "rest = cutlass.max(cute.ceil_div(k, CTA_K), 1), Int32(0)",
    ),
    "what follows is cleared in A alone": (
        PARTS,
        "        clear_k(cute.recast_tensor(sB, Int64), rest, last, stage)\n",
        "",
    ),
    "what boxes have before a part of K is multiplied": (ANYWHERE, "if before > 0:", "if before > CTA_K:"),
    "zeros are stored without a fence": (PARTS, REST_FENCE, REST_FENCE.split("\n")[1]),
    "a part of K without rows has the sums of what follows it": (
        PARTS,
        "begin = cutlass.max(room, 16)",
        "begin = begin",
    ),
    "a part of K without rows is left out": (
        PARTS,
        "Int32(first_group + cute.arch.lane_idx() < groups) * across",
        "Int32(stops > begins) * across",
    ),
    "both CTAs of a cluster clear the same rows": (
        CLUSTERED,
        "first_tile * CLUSTER_M * CLUSTER_N + rank, clusters * CLUSTER_M * CLUSTER_N)",
        "first_tile, clusters)",
    ),
    "factors of A begin where A's do": (
        SCALED,
        "tScaleAc[None, (begin + tile_m * CTA_M) // 4 * 4, k_tile, 0]",
        "tScaleAc[None, tile_m * CTA_M // 4 * 4, k_tile, 0]",
    ),
    "factors of the weights are those of the first group": (
        SCALED,
        "tScaleBc[None, tile_n * CTA_N // 128, k_tile // 4 * 4, batch]",
        "tScaleBc[None, tile_n * CTA_N // 128, k_tile // 4 * 4, 0]",
    ),
    "what follows a part of K is in promoted sums": (
        PROMOTED,
        "if later == k_tiles - 1:",
        "if later == k_tiles:",
    ),
    "a warpgroup skips as many k-tiles as it has multiplied": (
        IN_TURN,
        "stage, phase = skip(stage, phase, k_tiles_of(tile, begins, stops, first_tiles))\n\n",
        "stage, phase = skip(stage, phase, k_tiles)\n\n",
    ),
    "the second warpgroup begins with the first tile's k-tiles": (
        IN_TURN,
        "if group == 1:\n            stage, phase = skip(stage, phase, k_tiles_of(tile, begins, stops, first_tiles))",
        "if group == 1:\n            pass",
    ),
    "the second warpgroup clears what the first has multiplied": (
        LAST_IN_TURN,
        "rest * Int32(group == 0)",
        "rest * group",
    ),
    "warpgroups without rows multiply": (WIDE, "if tile_m * CTA_M + group_m * MMA_SHAPE[0] < m:", "if tile_m >= 0:"),
    "the last row of a warpgroup is left out": (
        WIDE,
        "if tile_m * CTA_M + group_m * MMA_SHAPE[0] < m:",
        "if tile_m * CTA_M + group_m * MMA_SHAPE[0] + 1 < m:",
    ),
    "a warpgroup without rows releases no stage": (
        WIDE,
        "stage, phase = pass_over(k_tiles, full, empty, stage, phase)",
        "pass",
    ),
    "boxes of A begin between two vectors": (ROWS_TOGETHER, "begin, m = begin - before, m + before", "pass"),
    "a group without rows has a tile of those before it": (
        ROWS_TOGETHER,
        "(stops - begins + begins % GROUP_VECTOR) * Int32(stops > begins)",
        "(stops - begins + begins % GROUP_VECTOR)",
    ),
    "rows before a group are stored by vectors": (ROWS_TOGETHER, " and tDcC[last, i, j][0] >= before", ""),
    "columns before a group are stored by vectors": (COLUMNS_TOGETHER, " and tDcC[last, i, j][1] >= before", ""),
    "rows before a group are stored one element at a time": (ROWS_TOGETHER, " and tDcC[v, i, j][0] >= before", ""),
    "a part with rows before a group is stored in bulk": (
        ROWS_TOGETHER,
        "part_m * PART_M >= before and (part_m + 1)",
        "(part_m + 1)",
    ),
    "rows past the last end stay": (BIASED, "        clear(\n", "        (lambda *_: None)(\n"),
}


def waits_first(kernel: Kernel) -> bool:
    """Return whether a kernel waits for its predecessor on the stream before it reads or copies anything."""
    ptx = kernel.artifact.ptx
    reads = [ptx.index(opcode) for opcode in ("ld.global.b32", "cp.async.bulk.tensor.3d.shared")]
    return 0 <= ptx.find("griddepcontrol.wait") < min(reads)


@pytest.mark.dsl
def test_ends_that_a_predecessor_writes_are_read_after_its_end(kernels: Cache) -> None:
    setting = replace(BIASED, schedule=Schedule(programmatic=True))
    assert waits_first(compiled(setting, kernels)[1])
    wait, roles = "    cute.arch.griddepcontrol_wait()\n", "    stage, phase = Int32(0), Int32(0)\n"
    text = plan_text(setting)
    assert text.count(wait) == text.count(roles) == 1
    first = "    if cute.make_tensor(ends.iterator, 1)[0] > 0:\n    "
    late = text.replace(wait, "").replace(roles, first + wait + roles)
    assert not waits_first(edited(setting, text, late, kernels)[1])


@pytest.mark.dsl
@pytest.mark.slow
def test_weights_may_come_before_a_predecessor_ends_and_ends_may_not(kernels: Cache) -> None:
    setting = replace(BIASED, schedule=Schedule(programmatic="weights"))
    planned, kernel = compiled(setting, kernels)
    assert planned.launch.ahead == ("b",)
    assert "prefetch.tensor" in kernel.artifact.ptx.partition("griddepcontrol.wait")[0]
    assert list(failures(planned, kernel, 4, setting.among)) == []
    wait, roles = "    cute.arch.griddepcontrol_wait()\n", "    stage, phase = Int32(0), Int32(0)\n"
    text = plan_text(setting)
    early = "    if cute.make_tensor(ends.iterator, 1)[0] > 0:\n    " + wait
    wrong = edited(setting, text, text.replace(wait, "").replace(roles, early + roles), kernels)
    assert "no griddepcontrol.wait comes first" in next(iter(failures(*wrong, 1, setting.among)))


@pytest.mark.parametrize(("of", "majors", "name"), [("m", "mkn", "a"), ("n", "knn", "b")])
def test_groups_that_begin_anywhere_in_rows_are_refused(of: str, majors: str, name: str) -> None:
    """Boxes begin at multiples of 16 bytes, and only C is stored without what a tile then has before a group."""
    setting = Setting(of, majors=majors, tile=(64, 64, 64))
    anywhere = f'problem.{name}.major: found "{of}", along which groups begin anywhere'
    refused = [
        (replace(setting, ops=("beta",)), ", with beta"),
        (replace(setting, ops=("aux", "relu")), ", with aux"),
        (replace(setting, family="sm100", tile=(128, 64, 64)), ""),
    ]
    for each, what in refused:
        with pytest.raises(SpecError, match=anywhere + what) as found:
            plan(each.spec(), ARCHES[each.family])
        assert 'family = "sm80"' in str(found.value)
        plan(replace(each, layout="padded").spec(), ARCHES[each.family])
    found = plan(setting.spec(), ARCHES["sm90"])
    assert isinstance(found, GemmPlan)
    assert (found.scheduler.vector, found.group_vector) == (8, 8)
    for wrong, why in (
        (replace(found, scheduler=replace(found.scheduler, vector=4)), "would begin between multiples of 16 bytes"),
        (replace(found, epilogue=replace(found.epilogue, edge=None)), "C would get|boxes would store"),
    ):
        with pytest.raises(ProofError, match=why):
            prove(wrong)


@pytest.mark.dsl
@pytest.mark.slow
def test_what_comes_before_a_group_may_push_its_end_into_another_tile(kernels: Cache) -> None:
    """Groups that begin inside a vector of 8 columns, and fill a tile of 64 but for fewer than that."""
    ends, among = np.array([3, 67, 128, 192], np.int32), COLUMNS_TOGETHER.among
    assert failure(*compiled(COLUMNS_TOGETHER, kernels), ends, 60, fresh=False, among=among) == ""
    extent = "(stops - begins + begins % GROUP_VECTOR) * Int32(stops > begins)"
    wrong = edited(COLUMNS_TOGETHER, extent, "(stops - begins)", kernels)
    assert failure(*wrong, ends, 60, fresh=False, among=among) != ""


CLEARED_B = "        clear_k(sB, Int32(0), before, stage)\n"


def spoiled_by_neighbors(kernel: Kernel) -> bool:
    """Tell whether NaN of one part of K reaches the next one's sums."""
    random = np.random.default_rng(8)
    a, b = (random.standard_normal((72, 40)).astype(np.float16) for _ in "ab")
    a[:, :3] = b[:, :3] = np.nan
    _, found = kernel(a, b.T, offs=np.array([3, 40], np.int32))
    exact = a[:, 3:].astype(np.float64) @ b[:, 3:].T.astype(np.float64)
    return not np.allclose(found.astype(np.float64), exact, rtol=0.002, atol=0.02)


@pytest.mark.dsl
@pytest.mark.slow
def test_boxes_of_parts_of_k_begin_at_vectors(kernels: Cache) -> None:
    """Parts of K begin anywhere in K-major operands, and boxes at multiples of 8 elements of 16 bits."""
    planned, kernel = compiled(ANYWHERE, kernels)
    assert planned.k_vector == 8
    for sizes in ([3, 70, 0, 1, 60, 2], [0, 9, 0, 127, 64, 0]):
        ends = np.cumsum(sizes, dtype=np.int32)
        assert failure(planned, kernel, ends, 7, fresh=False, among=PARTS_OF_K) == ""
    assert not spoiled_by_neighbors(kernel)
    alone = edited(ANYWHERE, plan_text(ANYWHERE), plan_text(ANYWHERE).replace(CLEARED_B, ""), kernels)[1]
    assert spoiled_by_neighbors(alone)
    m_major = plan(replace(ANYWHERE, majors="mnn").spec(), ARCHES["sm90"])
    assert isinstance(m_major, GemmPlan)
    assert m_major.k_vector == 1
    assert "K_VECTOR" not in request_of(m_major).source.text


def plan_text(setting: Setting) -> str:
    planned = plan(setting.spec(), ARCHES[setting.family])
    assert isinstance(planned, GemmPlan)
    return request_of(planned).source.text


def edited(setting: Setting, right: str, wrong: str, kernels: Cache) -> tuple[GemmPlan, Kernel]:
    """Compile a kernel with a mistake at every place where the text has `right`."""
    planned = plan(setting.spec(), ARCHES[setting.family])
    assert isinstance(planned, GemmPlan)
    asked = request_of(planned)
    assert right in asked.source.text
    text = asked.source.text.replace(right, wrong)
    return planned, Kernel(build(replace(asked, source=replace(asked.source, text=text), edited=True), kernels))


@pytest.mark.dsl
@pytest.mark.parametrize("fresh", [False, True])
def test_parts_of_no_k_at_all_are_zero(fresh: bool, kernels: Cache) -> None:
    """The extents of a tensor map are at least 1: a k-tile at place 0 would have what lies there."""
    none = replace(PARTS.among, room=0)
    assert failure(*compiled(PARTS, kernels), np.zeros(5, np.int32), 1, fresh=fresh, among=none) == ""


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_wrong_kernel_is_noticed(mistake: str, kernels: Cache) -> None:
    setting, right, wrong = PLANTED[mistake]
    kernel = edited(setting, right, wrong, kernels)
    assert any(failures(*kernel, 8, setting.among)) or fails_with_many_groups(*kernel, setting.among)
