"""A Hopper twin of family sm100: its roles, pipelines, scheduler and epilogue, on a GPU that has no tcgen05.

The twin has every template of sm100 but those of `tcgen05` itself; `hopper_twin.py.j2` stands in for them. A warpgroup
multiplies by wgmma in place of a thread, and writes its sums to shared memory, at the addresses that they would have in
tensor memory. So barriers, phases, tails, epilogues and stores of sm100 run on real hardware. Only tests name it.

| pipeline | from | to | full: arrivals | empty: arrivals |
|---|---|---|---|---|
| `ab` | producer | mma | bytes of the copies | each warp, when its warpgroup's multiplications are complete |
| `accumulator` | mma | epilogue | each warp that has written its sums | each warp that has loaded its sums |
| `c_store` | epilogue | bulk stores | `bar.sync` of those that write a buffer | the stores that read it |

Factors of f32 scale sums of blocks of K as in sm100. Those of 8 bits are of `tcgen05.mma` alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cutegen.algebra import Extents, TiledMma
from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.contract.problem import Groups
from cutegen.hardware import WGMMA_ATOMS, Instruction, MmaAtom, Target, dtype
from cutegen.hardware.multiplies import OperandSource
from cutegen.hardware.tcgen05 import LANES
from cutegen.hardware.units import REGISTER_BITS, WARPGROUP, WGMMA_ROWS
from cutegen.plan import GemmPlan, plan
from cutegen.plan.families import FAMILIES, SM100, Family, register
from cutegen.plan.kernel.accumulator import Accumulator, Home
from cutegen.plan.kernel.memory import Region
from cutegen.plan.kernel.pipeline import MMA, Arrival, Barrier, By, Pipeline, Role
from cutegen.plan.kernel.program import Action, Slot, Step
from cutegen.plan.mainloop.programs import copied_in_bulk
from cutegen.plan.mainloop.tensor_memory import TmaTmem
from cutegen.plan.mma import blocks
from cutegen.plan.mma.tcgen05 import REGISTERS, Tcgen05, choose_accumulator, choose_cluster
from cutegen.plan.parts import CountedPlan, Mma, Operands, Roles
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.run import Kernel
from cutegen.run.call.storage import ENDS_NAMES
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import (
    Bias,
    Epilogue,
    Extra,
    Factors,
    GemmSpec,
    Grouped,
    Operand,
    Problem,
    Quantized,
    Raster,
    Schedule,
    Tile,
)
from cutegen.spec.families import TCGEN05, PartKeys
from cutegen.support.words import extents
from cutegen.verify.counts import count_launch
from cutegen.verify.grouped import LEFT, GroupedCall, given_by
from cutegen.verify.reference import expected_outcome, random_extras, random_operands
from tests.run.against_float64 import hold, made

NAME, ARCH = "hopper_twin", "sm_90"
TEXT = Path(__file__).with_name("hopper_twin.py.j2").read_text()
"""What stands in for the templates of tcgen05."""
COLUMN_BYTES = LANES * REGISTER_BITS // 8
"""A column of tensor memory: 4 bytes of each lane."""
MOST_COLUMNS_SCALED = 96
"""Columns of a tile whose blocks are scaled: 416 threads have registers for sums of no more."""
MOST_COLUMNS = 256
"""Columns of sums of blocks, 128 KiB: shared memory has stages too."""
REGISTERS_BESIDE_SUMS = 40
"""Registers of a thread that multiplies, beside its sums: addresses, descriptors and barriers."""


def _accumulator(
    spec: GemmSpec, target: Target, atom: MmaAtom, tile: tuple[int, int]
) -> tuple[Accumulator, tuple[Decision, ...]]:
    """The sums of tiles, or of blocks of K that factors scale, in as many buffers as shared memory has room for."""
    if not blocks.scales_sums(spec):
        of_tiles = choose_accumulator(atom, tile)
        return of_tiles.value, (of_tiles.decision,)
    sums, decisions = blocks.choose_accumulator(spec, target, atom, tile)
    return replace(sums, buffers=min(sums.buffers, MOST_COLUMNS // sums.columns)), decisions


class WgmmaToShared(Mma):
    """A warpgroup multiplies by wgmma; its sums have the layout and the buffers of tensor memory."""

    keys: ClassVar[PartKeys] = PartKeys(
        frozenset({Instruction.WGMMA}),
        {
            **TCGEN05.without,
            "mma.cta_group": "wgmma is for one CTA",
            "schedule.tiles": "no target of wgmma cancels CTAs that have not started",
        },
    )

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for factors that an instruction would read; types are those that tests ask for."""
        if (factors := spec.problem.scale_a) is None:
            return
        if factors.in_atoms:
            f32 = "factors of f32, which scale sums: wgmma reads none"
            raise spec.error("problem.scale_a", found=str(factors), expected=f32, fix="leave dtype out")
        blocks.check_types(spec)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        m, n, _ = cta_tile.value
        types = (spec.problem.a.dtype, spec.problem.b.dtype, spec.problem.accumulator)
        atom = next(
            each
            for each in WGMMA_ATOMS.values()
            if (each.a_dtype.name, each.b_dtype.name, each.c_dtype.name) == types
            and (each.shape_mnk[1], each.a_source) == (n, OperandSource.SMEM)
        )
        cluster = choose_cluster(spec, cta_group=1)
        sums, of_sums = _accumulator(spec, target, atom, (m, n))
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom,
            tiled_mma=TiledMma(atom, (1, 1, 1)),
            role=Role(name=MMA, threads=WARPGROUP),
            accumulator=replace(sums, home=Home.SHARED_MEMORY),
            cluster=cluster.value,
        )
        by = Decision("mma.atom", atom.name, f"{m // WGMMA_ROWS} x {WGMMA_ROWS} rows, and all columns of the tile")
        return mma, (cta_tile.decision, by, *of_sums, cluster.decision)

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Those of a thread of the epilogue, or of one with sums on their way to shared memory."""
        rows, columns = mma.accumulator.tile
        return max(REGISTERS, rows * columns // WARPGROUP + REGISTERS_BESIDE_SUMS)

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """A thread stores the address of the sums, as tcgen05.alloc does."""
        return {**Tcgen05().counted(counts, plan), "st.shared.b32": 1}


class TmaToShared(TmaTmem):
    """sm100's feed, with shared memory in place of tensor memory, and warps that arrive in place of the tensor core."""

    def roles(self, spec: GemmSpec, target: Target, mma: MmaPlan, estimate: int) -> Roles:
        """The warps that multiply come second: they are a warpgroup."""
        found = super().roles(spec, target, mma, estimate)
        drains, producer, multiplies = found.roles
        return replace(found, roles=(drains, multiplies, producer))

    def ab(self, mma: MmaPlan, stages: int, stage_bytes: int, *, clears: bool) -> Pipeline:
        """Warps arrive, which orders their stores too."""
        return copied_in_bulk(mma.role, stages, stage_bytes, ctas=sum(mma.sharing) - 1)

    def sums(self, mma: MmaPlan, drains: Role) -> Pipeline:
        of_warps = Barrier(
            sync=(found := super().sums(mma, drains)).full.sync,
            count=mma.role.warps,
            arrivals=(Arrival(mma.role.name, By.WARP),),
        )
        return replace(found, full=of_warps)

    def places_of_sums(self, accumulator: Accumulator) -> tuple[Region, ...]:
        sums_bytes = accumulator.buffers * accumulator.columns * COLUMN_BYTES
        sums = Region(name="sums", owner="accumulator", bytes=sums_bytes, align_bytes=COLUMN_BYTES)
        return (*super().places_of_sums(accumulator), sums)

    def k_tile(self, k_blocks: int, *, scaled: bool) -> Slot:
        """A group of multiplications, whose end its warpgroup waits for."""
        multiplied = (Step(Action.MULTIPLY, 0, block) for block in range(k_blocks))
        drained = (Step(Action.MMA_COMMIT), Step(Action.MMA_WAIT, pending=0), Step(Action.RELEASE))
        return (Step(Action.WAIT), Step(Action.MMA_FENCE), *multiplied, *drained)


def _cta_tile(spec: GemmSpec, target: Target) -> Choice[Extents]:
    assert spec.tile.cta is not None
    return Choice(spec.tile.cta, Decision.as_given("tile.cta", extents(spec.tile.cta)))


@contextmanager
def registered() -> Iterator[Family]:
    """Make the family known to specs, the planner and the renderer."""
    composed = Family(
        name=NAME,
        mma=WgmmaToShared(),
        mainloop=TmaToShared(),
        schedule=SM100.schedule,
        cta_tile=_cta_tile,
        parts=(
            TEXT,
            "functions/wgmma.py.j2#multiply",
            "mma/descriptors_of_stage.py.j2",
        ),
    )
    register(composed, "wgmma in place of tcgen05.mma, bulk tensor copies")
    try:
        yield composed
    finally:
        del FAMILIES[NAME], SPEC_FAMILIES[NAME]


TYPES = (
    ("f16", "f16", "f32"),
    ("bf16", "bf16", "f32"),
    ("bf16", "bf16", "f32"),
    ("s8", "s8", "s32"),
    ("u8", "s8", "s32"),
)
"""Types of A, B and sums."""
OPS: tuple[tuple[str, ...], ...] = (
    (),
    (),
    ("relu",),
    ("bias_n", "gelu_tanh"),
    ("alpha", "beta", "residual"),
    ("bias_m", "aux", "silu"),
    ("scale_m", "scale_n", "bias_n", "bias_m"),
)
CLUSTERS: tuple[tuple[int, int] | None, ...] = (None, None, None, (2, 1), (1, 2), (2, 2))
GROUPED = (
    *(Grouped("m"), Grouped("m"), Grouped("m", "padded"), Grouped("n"), Grouped("n", "padded")),
    *(Grouped("k"), Grouped("k")),
)
FACTORS = tuple(
    (Factors((of_a, 128)), Factors((of_b, 128))) for of_a, of_b in ((1, 128), (1, 128), (1, 1), (128, 1), (128, 128))
)
"""Rows of A and of B that share a factor for 128 of K: those of DeepSeek's recipe twice as often."""
POLICIES = ("in-order", "reversed")


Size = tuple[int, int, int, int | None]
"""M, N, K, and the batch."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel, and problems for an executor and for a GPU."""

    spec: GemmSpec
    small: Size
    large: Size


def random_case(seed: int) -> Case:
    """Types, majors, alignments, tiles, clusters, slices of K, stages, epilogues; the problems have all edges.

    A GPU's CTAs have several tiles each in most of the large ones, more than buffers of sums.
    """
    rng = random.Random(seed)
    extras: dict[str, Any] = {}
    of_a, of_b, sums = rng.choice(TYPES)
    element, integers = dtype(of_a), dtype(of_a).is_integer
    result = rng.choice(("s32", "s8", "f32", "f16") if integers else ("f16", "bf16", "f32"))
    rows, columns = rng.choice((64, 128, 128)), rng.choice((16, 32, 48, 64, 96, 128))
    depth = rng.choice((32, 64, 128, 128, 256) if columns < 96 else (64, 128)) // element.bytes
    a, b = ("k", "k") if integers else (rng.choice("km"), rng.choice("kn"))
    ops, swap, cluster = rng.choice(OPS), rng.random() < 0.2, rng.choice(CLUSTERS)
    c_way = rng.choice(("shared", "shared", "shared", "registers", "unaligned"))
    if "aux" in ops:
        extras["aux"] = Extra("f32", rng.choice("mn"))
    if "residual" in ops:
        extras["residual"] = Extra("f16", rng.choice("mn"))
    if {"bias_n", "bias_m"} & {*ops}:
        extras["bias"] = Bias("f32")
    spec = GemmSpec(
        family=NAME,
        problem=Problem(
            a=Operand(of_a, a),
            b=Operand(of_b, b),
            c=Operand(result, rng.choice("nnm"), dtype(result).bytes if c_way == "unaligned" else 16),
            accumulator=sums,
            **extras,
        ),
        tile=Tile(cta=(rows, columns, depth), stages=rng.choice((None, 1, 2, 3) if columns < 96 else (None, 1, 2))),
        epilogue=Epilogue(False if c_way == "registers" else None, ops or None),
        schedule=Schedule(raster=rng.choice((None, Raster("m", 3, zigzag=True))), swap=swap or None, cluster=cluster),
        name=f"twin_{seed}",
    )
    across = rows if swap else columns
    small = rng.choice((1, 37, 130, 300)), rng.choice((8, across, 2 * across + 8)), rng.choice((0, 8, 2 * depth + 8))
    large = rng.choice((130, 1000, 2001, 4096)), rng.choice((136, 1000, 2048)), rng.choice((8, 96, 520, 1000))
    case = Case(spec, (*small, rng.choice((None, None, 2))), (*large, rng.choice((None, None, 3))))
    if cluster is None and rng.random() < 0.3:
        case = replace(case, spec=replace(spec, schedule=replace(spec.schedule, split_k=rng.choice((2, 3, 5)))))
    return case


def random_grouped_case(seed: int) -> Case:
    """A random case whose rows, columns or parts of K belong to groups."""
    return _in_groups(random_case(seed), random.Random(seed).choice(GROUPED), f"grouped_twin_{seed}")


def _in_groups(case: Case, grouped: Grouped, name: str) -> Case:
    """The case with groups.

    A box begins at a multiple of 16 bytes, and packed groups anywhere: their rows of A are not contiguous, nor are
    their columns of B.
    """
    problem = case.spec.problem
    a, b = problem.a, problem.b
    if grouped.layout == "packed":
        a, b = (replace(x, major="k") if grouped.of == mode else x for x, mode in ((a, "m"), (b, "n")))
    schedule = replace(case.spec.schedule, split_k=None)
    if schedule.cluster is not None and grouped.of != "k":  # CTAs of a cluster have rows of one group
        along_m, along_n = schedule.cluster[:2]
        alone = (1, along_n) if (grouped.of == "m") != bool(schedule.swap) else (along_m, 1)
        schedule = replace(schedule, cluster=alone)
    problem = replace(problem, a=a, b=b, groups=grouped)
    spec = replace(case.spec, problem=problem, schedule=schedule, name=name)
    (m, n, k, _), (*large, _) = case.small, case.large
    return Case(spec, (m, n, max(k, 40) if grouped.of == "k" else k, None), (*large, None))


def random_scaled_case(seed: int) -> Case:
    """A random case with factors of f32, which scale sums of blocks of K; rows or columns of some are in groups."""
    rng, case = random.Random(f"scaled {seed}"), random_case(seed)
    grouped = rng.choice((None, None, *(each for each in GROUPED if each.of != "k")))
    of_a, of_b = rng.choice(FACTORS)
    if grouped is not None and grouped.layout == "packed":  # a group begins at any row, or column
        of_a, of_b = (Factors((1, 128)) if grouped.of == of else x for of, x in (("m", of_a), ("n", of_b)))
    problem, tile = case.spec.problem, case.spec.tile
    assert tile.cta is not None
    result = problem.c
    if dtype(result.dtype).is_integer:
        result = Operand("bf16", result.major, 2 if (result.align or 0) < 16 else 16)
    a, b = (Operand(rng.choice(("e4m3", "e4m3", "e5m2")), "k") for _ in "ab")
    problem = replace(problem, a=a, b=b, c=result, accumulator="f32", scale_a=of_a, scale_b=of_b)
    tile = Tile(cta=(LANES, min(tile.cta[1], MOST_COLUMNS_SCALED), 128), stages=rng.choice((None, 1, 2)))
    k = rng.choice((0, 16, 400, 656))
    small, large = (*case.small[:2], k, case.small[3]), (*case.large[:2], rng.choice((128, 528, 2000)), case.large[3])
    scaled = replace(case, spec=replace(case.spec, problem=problem, tile=tile, name=f"scaled_twin_{seed}"))
    scaled = replace(scaled, small=small, large=large)
    return scaled if grouped is None else _in_groups(scaled, grouped, f"scaled_grouped_twin_{seed}")


def random_quantized_case(seed: int) -> Case:
    """A random case with a quantized C, of which each row of a part has a factor.

    Operands have 16 bits, or 8 and factors of f32. Rows of some are in groups.
    """
    rng, case = random.Random(f"quantized {seed}"), random_case(seed)
    problem = case.spec.problem
    a, b = (replace(x, dtype=rng.choice(("f16", "bf16")), major="k") for x in (problem.a, problem.b))
    problem = Problem(a=a, b=replace(b, dtype=a.dtype), c=Operand("e4m3", "n"), accumulator="f32", bias=Bias("f32"))
    epilogue = Epilogue(ops=rng.choice((None, ("relu",), ("bias_n", "silu"))))
    if epilogue.ops is None or "bias_n" not in epilogue.ops:
        problem = replace(problem, bias=None)
    tile = Tile(cta=(rng.choice((64, 128, 128)), 128, rng.choice((32, 64))), stages=rng.choice((None, 1, 2)))
    if rng.random() < 0.4:
        factors = {"scale_a": Factors((1, 128)), "scale_b": Factors((rng.choice((1, 128)), 128))}
        a, b = (replace(x, dtype="e4m3") for x in (problem.a, problem.b))
        problem, tile = replace(problem, a=a, b=b, **factors), replace(tile, cta=(LANES, 128, 128))
    spec = replace(
        case.spec,
        problem=problem,
        tile=tile,
        epilogue=replace(epilogue, quantize=Quantized("e4m3", rng.choice(("f32", "ue8m0")))),
        schedule=replace(case.spec.schedule, swap=None),
        name=f"quantized_twin_{seed}",
    )
    made_so = Case(spec, case.small, case.large)
    return made_so if rng.random() < 0.6 else _in_groups(made_so, Grouped("m"), f"quantized_grouped_twin_{seed}")


def _sizes(rng: np.random.Generator, room: int, grouped: Groups) -> list[int]:
    """Sizes that fit: some empty, few or many; packed ones may leave a rest."""
    packs_c = grouped.layout == "packed" and grouped.of != "k"  # else each group has a C
    groups = int(rng.choice((1, 3, 8, 40 if packs_c else 5)))
    if grouped.layout == "padded":
        return [int(each) for each in rng.integers(0, room + 1, groups) * rng.integers(0, 2, groups)]
    ends = np.sort(rng.integers(0, room + 1, groups))
    return [int(each) for each in np.diff(ends, prepend=0)]


def made_for(kernel: Kernel, size: Size, **where: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A, B, the result, poisoned, and what the epilogue takes; groups of random sizes.

    What no group has is NaN in A and B, and must be left in results. `where` is a framework and a device.
    """
    contract, (m, n, k, batch) = kernel.contract, size
    if (groups := contract.groups) is None:
        return made(kernel, m, n, k, batch, **where)
    rng = np.random.default_rng(m * n + k)
    given = given_by(groups, _sizes(rng, {"m": m, "n": n, "k": k}[groups.of], groups))
    options: dict[str, Any] = {"seed": m * n + k, "groups": len(given), **where}
    a, b, out = random_operands(contract, m, n, k, **options)
    extras = random_extras(contract, m, n, k=k, **options)
    extras[ENDS_NAMES[groups.layout]] = given
    call = GroupedCall.of(contract, a, b, {**extras, "out": out})
    for name in ("a", "b"):
        if not dtype(contract.tensor(name).dtype).is_integer:
            call.fill_rest(name, np.nan)
    for name in {"out", "aux", RESULT_FACTORS} & call.operands.keys():
        call.fill_rest(name, LEFT)
    if where:
        import torch

        extras[ENDS_NAMES[groups.layout]] = torch.from_numpy(given).to(where["device"])
    return a, b, out, extras


def expected_of(planned: GemmPlan, kernel: Kernel, a: Any, b: Any, extras: Mapping[str, Any]) -> Any:
    """What the operands should give, and LEFT where no group has an element."""
    sums = planned.atom.c_dtype.name
    return expected_outcome(kernel.contract, a, b, extras, accumulator=sums, left=LEFT)


def compiled(spec: GemmSpec, kernels: Cache) -> tuple[GemmPlan, Kernel]:
    """The plan and the kernel of a spec, which was emitted as planned.

    A quantized row of 128 sums, and sums beside partial sums that factors scale, may spill: ptxas leaves 168 registers
    to each of 288 threads, where sm100 has 254.
    """
    planned = plan(spec, ARCH)
    assert isinstance(planned, GemmPlan)
    kernel = Kernel(build(request_of(planned), kernels))
    many = spec.epilogue.quantize is not None or spec.problem.scale_a is not None
    warnings = [x for x in kernel.artifact.manifest.warnings if not (many and "registers spill" in x)]
    assert warnings == [], warnings
    return planned, kernel


def execute(planned: GemmPlan, kernel: Kernel, problem: Size, policy: str, max_steps: int | None = None) -> None:
    """Raise AssertionError unless a launch on the CPU is right, in order, and has the plan's counts."""
    a, b, out, extras = made_for(kernel, problem)
    outcome = expected_of(planned, kernel, a, b, extras)
    report = kernel.execute(a, b, out=out, **extras, policy=policy, max_steps=max_steps)
    assert report.violations == () == report.conventions, (report.violations, report.conventions)
    given = tuple(int(each) for name in ENDS_NAMES.values() for each in extras.get(name, ()))
    differing = count_launch(planned, kernel.call_size(a, b, out, **extras), report, given).differing()
    # Sums that are stored to shared memory are no stores of C.
    assert differing.keys() <= {"wavefronts epilogue.write"}, differing
    hold(kernel, out, extras, outcome)
