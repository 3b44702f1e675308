"""Kernels of groups on the CPU executor: any ends or sizes, against float64, and nothing outside the groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.contract.launch import FACTORS, OPERANDS, RESULT, RESULT_FACTORS
from cutegen.errors import OperandError, PtxFault, RequestError
from cutegen.hardware import WORDS
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.run.call.storage import ENDS_NAMES, CallTensor, call_tensors
from cutegen.spec import Epilogue, GemmSpec, Grouped, Operand, Paired, Problem, Tile
from cutegen.verify.counts import count_launch
from cutegen.verify.grouped import LEFT, GroupedCall, given_by, part_of, stored
from cutegen.verify.reference import compare, expected_outcome, random_extras, random_operands
from tests.run.against_float64 import undefined

SEED = 60
WHOLE_K = 2
"""A seed with which a launch has all of K."""
N, K = 72, 80
ROOM = 90
"""The extent of the grouped mode: for K a multiple of no k-tile."""
TILE = (32, 32, 32)


@dataclass(frozen=True, slots=True)
class Extents:
    """The room for groups, and the other modes' extents in their cases."""

    room: int = ROOM
    m: int = 40
    n: int = N
    k: int = K
    tile: tuple[int, ...] = TILE


SMALL = Extents()


@dataclass(frozen=True, slots=True)
class Setting:
    """A kernel of groups: the grouped mode and its layout, types, majors of A, B and C, and the epilogue's ops."""

    of: str
    layout: str = "packed"
    types: tuple[str, str] = ("f16", "f32")
    majors: str = "kkn"
    ops: tuple[str, ...] = ()
    align: int | None = None
    target: str = "sm_80"
    pairs: Paired | None = None

    def spec(self) -> GemmSpec:
        (element, of_c), (a, b, c) = self.types, self.majors
        problem = Problem(
            a=Operand(element, a, self.align),
            b=Operand(element, b, self.align),
            c=Operand(of_c, c),
            groups=Grouped(self.of, self.layout),  # type: ignore[arg-type]
        )
        k = TILE[2] if element not in ("s8", "e4m3") else 2 * TILE[2]
        expression = "x, y -> silu(x) * y" if self.pairs else None
        epilogue = Epilogue(ops=self.ops or None, expression=expression, pairs=self.pairs)
        name = f"grouped_{self.of}"
        return GemmSpec(family="sm80", problem=problem, tile=Tile((*TILE[:2], k), 2), epilogue=epilogue, name=name)


QUICK = (
    Setting("m", types=("bf16", "bf16"), ops=("bias_n", "relu")),
    Setting("m", "padded", majors="kkn"),
    Setting("k", majors="mnn"),
    Setting("n", majors="mkm", ops=("bias_m", "beta")),
)
MORE = (
    Setting("m", majors="mnm", ops=("bias_m", "scale_n", "residual", "aux")),
    Setting("m", types=("s8", "s32")),
    Setting("m", types=("tf32", "f32"), majors="knn"),
    Setting("m", types=("e4m3", "bf16"), ops=("scale_m", "scale_n"), target="sm_89"),
    Setting("k", types=("e4m3", "f32"), target="sm_89"),
    Setting("m", types=("bf16", "f16"), align=2, majors="mkn"),
    Setting("m", types=("bf16", "bf16"), align=2, pairs=Paired("interleaved", "up")),
    Setting("m", "padded", types=("f16", "f32"), ops=("scale_n",), pairs=Paired("halves", "gate")),
    Setting("m", "padded", types=("f16", "f16"), majors="mnm", ops=("bias_n", "gelu_tanh")),
    Setting("n", "padded", types=("bf16", "f32"), majors="knn", ops=("scale_m", "scale_n")),
    Setting("k", types=("bf16", "f32"), majors="kkn", ops=("beta", "bias_n")),
    Setting("k", types=("f16", "f16"), majors="mkm", ops=("residual",)),
    Setting("k", types=("s8", "s32"), majors="kkn"),
    Setting("k", types=("tf32", "f32"), majors="knm"),
)


def compiled(setting: Setting, kernels: Cache) -> tuple[GemmPlan, Kernel]:
    planned = plan(setting.spec(), setting.target)
    assert isinstance(planned, GemmPlan)
    artifact = build(request_of(planned), kernels)
    assert artifact.manifest.warnings == ()  # emitted as predicted
    return planned, Kernel(artifact)


def sizes_of(random: np.random.Generator, room: int, layout: str, tile: tuple[int, ...] = TILE) -> list[int]:
    """Sizes that fit: many or few groups, empty ones also at both ends, tiles and one more or less."""
    groups = int(random.choice((1, 2, 5, 33, 70, 300)))
    near = [max(0, each + off) for each in (0, *tile, 64) for off in (-1, 0, 1)] if groups < 8 else [0, 1, 2, 3]
    any_size = room if groups < 8 else 4
    found = [
        int(random.choice((0, 1, int(random.integers(any_size)), int(random.choice(near))))) for _ in range(groups)
    ]
    if random.random() < 0.3:
        found[0] = found[-1] = 0
    if layout == "padded":
        return [min(size, room) for size in found]
    left = room
    for index, size in enumerate(found):
        found[index] = min(size, left)
        left -= found[index]
    return found


def _has_nan(tensor: CallTensor) -> bool:
    return tensor.dtype.name in WORDS or not (tensor.dtype.is_integer or tensor.dtype.values > 1)


def failure(
    planned: GemmPlan,
    kernel: Kernel,
    given: np.ndarray[Any, Any],
    seed: int,
    *,
    fresh: bool,
    among: Extents = SMALL,
) -> str:
    """Run one launch; return what is wrong with it, "" if nothing is.

    What no group has, and in half of the cases one whole group, is NaN in A or B and in their factors, which must not
    reach any other.
    """
    random, contract = np.random.default_rng(seed), kernel.contract
    groups = contract.groups
    assert groups is not None
    extents = {"m": among.m, "n": among.n, "k": int(random.choice((0, 7, among.k)))} | {groups.of: among.room}
    data: dict[str, Any] = {"seed": seed, "groups": len(given)}
    a, b, out = random_operands(contract, extents["m"], extents["n"], extents["k"], **data)
    extras = random_extras(contract, extents["m"], extents["n"], k=extents["k"], **data)
    extras[ENDS_NAMES[groups.layout]] = given
    call = GroupedCall.of(contract, a, b, {**extras, "out": out})
    names = [tensor.name for tensor in call_tensors(contract).values()]
    tensors, products = {x.name: x for x in call_tensors(contract).values()}, dict(call.products())
    in_nan = [name for name in (*OPERANDS, *FACTORS) if name in tensors and _has_nan(tensors[name])]
    for name in in_nan:
        call.fill_rest(name, np.nan)
    for name in {"out", "aux", RESULT_FACTORS} & set(names):
        call.fill_rest(name, LEFT)
    spoiled = int(random.integers(len(given))) if in_nan and random.random() < 0.5 else None
    if spoiled is not None:
        name = "a" if "a" in in_nan and ("scale_a" not in tensors or random.random() < 0.5) else "scale_a"
        whole, tensor = a if name == "a" else extras[name], tensors[name]
        call.part(whole, tensor, products[spoiled], spoiled)[...] = stored(np.nan, tensor, whole)
    expected = expected_outcome(
        contract, a, b, extras, accumulator=planned.atom.c_dtype.name, left=0.0 if fresh else LEFT
    )
    if spoiled is not None:
        for bounded in (expected.result, expected.aux, expected.factors):
            if bounded is not None:
                part_of(bounded.error, tensors["out"], products[spoiled], spoiled)[...] = np.inf
    try:
        if fresh:
            out = kernel(a, b, **extras)
        else:
            report = kernel.execute(a, b, out=out, **extras)
            counts = count_launch(planned, kernel.call_size(a, b, out, **extras), report, tuple(given.tolist()))
            if differing := counts.differing():
                return f"counts: {differing}"
            if found := undefined(kernel, report):
                return f"violation, or a convention: {found[0]}"
    except PtxFault as fault:
        return f"fault: {fault}"
    found = compare(out, expected.result, dtype=contract.tensor(RESULT).dtype)
    if not found.ok:
        return f"result: {found.wrong} wrong, first {found.first_wrong}"
    if expected.factors is not None:
        found = compare(extras[RESULT_FACTORS], expected.factors, dtype="f32")
        if not found.ok:
            return f"factors: {found.wrong} wrong, first {found.first_wrong}"
    if (
        expected.aux is not None
        and not fresh
        and not compare(extras["aux"], expected.aux, dtype=contract.tensor("aux").dtype).ok
    ):
        return "aux"
    return ""


def failures(planned: GemmPlan, kernel: Kernel, cases: int, among: Extents = SMALL) -> Iterator[str]:
    """Yield what is wrong with random launches: every third with any bits in place of ends, every second fresh."""
    groups = kernel.contract.groups
    assert groups is not None
    for seed in range(SEED, SEED + cases):
        random = np.random.default_rng(seed)
        given = given_by(groups, sizes_of(random, among.room, groups.layout, among.tile))
        if seed % 3 == 0:
            near = [-(2**31), -1, 0, 1, 31, among.room, among.room + 1, 2**31 - 1]
            given = random.choice(np.array(near, np.int32), len(given))
        elif (multiple := kernel.contract.begin_multiple) > 1:
            given -= given % multiple
        if wrong := failure(planned, kernel, given, seed, fresh=bool(seed % 2), among=among):
            yield f"seed {seed}, {given.tolist()}: {wrong}"


@pytest.mark.dsl
@pytest.mark.parametrize("setting", QUICK, ids=str)
def test_groups_are_right_for_any_ends(setting: Setting, kernels: Cache) -> None:
    assert list(failures(*compiled(setting, kernels), 4)) == []


@pytest.mark.dsl
@pytest.mark.slow
def test_whole_tiles_of_padded_groups_are_counted_as_predicted(kernels: Cache) -> None:
    """Sizes are read once more at the end, to clear what groups leave: that is no sector of the residual."""
    planned, kernel = compiled(Setting("m", "padded", types=("bf16", "f32"), ops=("residual",)), kernels)
    assert_whole_tiles_are_counted(planned, kernel)


def assert_whole_tiles_are_counted(planned: GemmPlan, kernel: Kernel) -> None:
    m, n, k = planned.mma.cta_tile
    among = Extents(room=2 * m, m=2 * m, n=n, k=k)
    for sizes in ([2 * m, 0, m], [0], [-(2**31)]):
        launch = failure(planned, kernel, np.array(sizes, np.int32), WHOLE_K, fresh=False, among=among)
        assert launch == "", sizes


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("setting", [*QUICK, *MORE], ids=str)
def test_many_groups_are_right_for_any_ends(setting: Setting, kernels: Cache) -> None:
    assert list(failures(*compiled(setting, kernels), 8)) == []


PLANTED: dict[str, tuple[Setting, str, str]] = {
    "an end is not clamped to the rows": (
        QUICK[0],
        "cutlass.min(ends[first_group + lane], room)",
        "ends[first_group + lane]",
    ),
    "an end may lie before that of an earlier lane": (
        QUICK[0],
        "end = cutlass.max(end, cute.arch.shuffle_sync_up(end, distance))",
        "pass",
    ),
    "an end may lie before that of an earlier warp-load": (QUICK[0], "room), begin)", "room), 0)"),
    "a size is not clamped to the room": (
        QUICK[1],
        "cutlass.max(cutlass.min(number, room), 0)",
        "cutlass.max(number, 0)",
    ),
    "a size may be negative": (QUICK[1], "cutlass.max(cutlass.min(number, room), 0)", "cutlass.min(number, room)"),
    "the weights are those of the next group": (
        QUICK[0],
        "first_group + lane, end - begin",
        "first_group + lane + 1, end - begin",
    ),
    "a group also has the next group's rows": (
        QUICK[0],
        "first_group + lane, end - begin",
        "first_group + lane, room - begin",
    ),
    "tiles of a group are numbered over all groups": (
        QUICK[0],
        "tile - cute.arch.shuffle_sync(first_tiles, lane)",
        "tile",
    ),
    "only the first 32 groups have tiles": (
        QUICK[0],
        "cutlass.range(0, groups, 32, unroll=1)",
        "cutlass.range(0, 1, 32, unroll=1)",
    ),
    "the sums of tiles leave out the lanes before": (QUICK[0], "value += other", "value += 0"),
    "tiles of later groups begin where a CTA does": (
        QUICK[0],
        "next_tile += cute.ceil_div(cutlass.max(tiles - next_tile, 0), ctas) * ctas",
        "next_tile = first_tile",
    ),
    "the next tile overwrites stages that are read": (
        QUICK[0],
        "# The next tile's copies write where this one was read.\n            cute.arch.sync_threads()\n",
        "",
    ),
    "rows past the last end stay": (QUICK[0], "clear(matrix", "(lambda *_: None)(matrix"),
    "rows of the last group are cleared": (QUICK[0], "batches), last_end, cleared", "batches), 0, cleared"),
    "K of the next group is added": (QUICK[2], "first_group + lane, end - begin", "first_group + lane, room - begin"),
    "a part of K begins where A does": (QUICK[2], "mB = cute.domain_offset((0, begin), mB)", "mB = mB"),
    "a group without rows stores nothing": (
        QUICK[2],
        "Int32(first_group + cute.arch.lane_idx() < groups)",
        "Int32(stops > begins)",
    ),
    "a bias of the first group is that of all": (
        QUICK[0],
        "batch_stride_bias, batch, batches)",
        "batch_stride_bias, 0, batches)",
    ),
}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_wrong_scheduler_is_noticed(mistake: str, kernels: Cache) -> None:
    setting, right, wrong = PLANTED[mistake]
    planned = plan(setting.spec(), setting.target)
    assert isinstance(planned, GemmPlan)
    asked = request_of(planned)
    assert asked.source.text.count(right) == 1
    edited = replace(asked, source=replace(asked.source, text=asked.source.text.replace(right, wrong)), edited=True)
    kernel = Kernel(build(edited, kernels))
    assert any(failures(planned, kernel, 12))


@pytest.mark.dsl
def test_what_is_wrong_with_ends_is_told(kernels: Cache) -> None:
    _, kernel = compiled(QUICK[2], kernels)
    a, b, ends = np.zeros((40, ROOM), np.float16).T.copy().T, np.zeros((ROOM, N), np.float16), np.zeros(3, np.int32)
    assert kernel(a, b, offs=ends).shape == (3, 40, N)
    for wrong, told in (
        ({}, r"offs: found none; expected the ends of the groups, .* pass offs="),
        ({"sizes": ends}, r'offs: found none|sizes: found one; .* layout = "padded"'),
        ({"offs": ends.astype(np.int64)}, r"offs: found dtype int64; expected s32|int32; .*offs.astype\(np.int32\)"),
        ({"offs": ends[None]}, r"offs: found 2 dimensions, shape \(1, 3\); expected 1, \(G\)"),
        ({"offs": np.zeros(6, np.int32)[::2]}, r"offs: found stride 2; expected contiguous"),
    ):
        with pytest.raises(OperandError, match=told):
            kernel(a, b, **wrong)
    _, rows = compiled(QUICK[1], kernels)
    a, b = np.zeros((3, ROOM, K), np.float16), np.zeros((3, N, K), np.float16).swapaxes(1, 2)
    with pytest.raises(
        OperandError, match=r"sizes: found 4 groups; expected 3, one for each matrix of a; `sizes\[1:\]`"
    ):
        rows(a, b, sizes=np.zeros(4, np.int32))
    with pytest.raises(
        OperandError, match=r"a: found 2 dimensions, .*; expected 3, \(G, M, K\), a matrix for each group"
    ):
        rows(a[0], b, sizes=ends)


@pytest.mark.dsl
def test_a_torch_tensor_of_int64_is_told_to_be_int32(kernels: Cache) -> None:
    torch = pytest.importorskip("torch")
    _, kernel = compiled(QUICK[2], kernels)
    a, b = torch.zeros(ROOM, 40, dtype=torch.float16).T, torch.zeros(ROOM, N, dtype=torch.float16)
    with pytest.raises(OperandError, match=r"`offs.to\(torch.int32\)`"):
        kernel(a, b, offs=torch.zeros(3, dtype=torch.int64))


def test_operands_of_groups_need_their_number() -> None:
    planned = plan(QUICK[0].spec(), "sm_80")
    assert isinstance(planned, GemmPlan)
    with pytest.raises(RequestError, match=r"problem.groups: found packed groups of m where one product is measured"):
        random_operands(planned.launch, 8, 8, 8, seed=0)
