"""Bulk tensor copies (TMA) into tiles that `tcgen05.mma` reads, sums in tensor memory, and warps that drain them.

| pipeline | from | to | full: arrivals | empty: arrivals |
|---|---|---|---|---|
| `ab` | producer | mma | bytes of the copies | the end of the multiplications that read the stage |
| `accumulator` | mma | epilogue | the end of a tile's multiplications | each warp that has loaded its sums |
| `c_store` | epilogue | bulk stores | `bar.sync` of those that write a buffer | the stores that read it |
| `tiles` | scheduler | every role | the bytes of an answer | each warp that has read it; only if tiles are dynamic |

The warp of the even CTA of a pair multiplies for both: the bytes of both arrive at its barriers, the end of its
multiplications at those of both, and the warps of both release sums at its barriers. The copies of a cluster arrive at
several CTAs; so does the end of multiplications, in all that copy to one of the CTA or the pair.

```text
producer   k-tiles of tile 0, 1, 2 ...   as stages become free
mma        tile 0 -> buffer 0    tile 1 -> buffer 1    tile 2 -> buffer 0, when it is drained
epilogue                         drain, store tile 0   drain, store tile 1 ...
```

If factors of f32 scale sums of blocks of K, `accumulator` holds those of a k-tile, which is a block. The warps that
drain them read its factors, which have a pipeline of their own: those of a pair are in both CTAs, and only one of them
waits for A and B.

| pipeline | from | to | full: arrivals | empty: arrivals |
|---|---|---|---|---|
| `factors` | producer | epilogue | bytes of the copies | each warp that has read them |
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from cutegen.contract.launch import OPERANDS
from cutegen.hardware import OperandSource, Target
from cutegen.hardware.tcgen05 import COLUMNS, PAIR
from cutegen.hardware.units import WARP
from cutegen.plan.epilogue.store import choose_parted_epilogue
from cutegen.plan.kernel.accumulator import Accumulator
from cutegen.plan.kernel.memory import ALWAYS, BARRIERS, Region, allocate, result_region
from cutegen.plan.kernel.pipeline import (
    AB,
    C_STORE,
    MBARRIER_BYTES,
    MMA,
    OF_FACTORS,
    PRODUCER,
    Arrival,
    Barrier,
    By,
    Item,
    Pipeline,
    Role,
    Scope,
    Sync,
    mbarriers_bytes,
)
from cutegen.plan.kernel.program import Action, KernelLoop, Mark, Nth, Program, Range, RangeName, Section, Slot, Step
from cutegen.plan.mainloop.programs import FETCHED, stored_in_bulk
from cutegen.plan.mainloop.tma import Bulk, choose_described
from cutegen.plan.operands import staging
from cutegen.plan.operands.factor_atoms import choose_atoms, columns_of
from cutegen.plan.operands.factors import are_held, choose_factors
from cutegen.plan.operands.shared_memory import check_rows, choose_bulk_copy
from cutegen.plan.parts import Draft, Mainloop, Memory, Operands, Roles
from cutegen.plan.schedule.cluster import is_dynamic
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec
from cutegen.spec.families import DRAINED_BOXES, PartKeys
from cutegen.support.words import plural, round_up

Steps = tuple[Range | Section, ...]
EPILOGUE, ACCUMULATOR = "epilogue", "accumulator"
"""Names of the role that drains sums, and of the pipeline of tensor memory."""
ADDRESS = "tensor_memory"
"""Name of the region of shared memory to which an allocation of tensor memory writes its address."""
SCHEDULER, TILES = "scheduler", "tiles"
"""Names of the role that asks for tiles of CTAs that have not started, and of the pipeline of the answers."""
ANSWERS, ANSWER_BYTES = 2, 16
"""Answers that are under way or being read, and the bytes of one."""
ADDRESS_BYTES, BARRIERS_BYTES = 16, 624
"""Bytes of that region, aligned, and those that barriers take at most."""


def multiplied_in_tensor_memory(mma: MmaPlan, stages: int, stage_bytes: int, *, clears: bool = False) -> Pipeline:
    """`ab` if the tensor core reads a stage until a `tcgen05.commit` arrives, from each CTA or pair that reads it.

    If the warp that multiplies `clears` what follows a group's part of K, a thread of it arrives too: a commit orders
    multiplications alone, and not stores, before the next copies.
    """
    commits = sum(mma.sharing) - 1
    arrivals = (Arrival(MMA, By.MMA, commits), *((Arrival(MMA, By.WARP, commits),) if clears else ()))
    return Pipeline(
        name=AB,
        producers=(PRODUCER,),
        consumers=(MMA,),
        holds=Item.K_TILE,
        stages=stages,
        payload_bytes=stage_bytes * mma.atom.ctas,
        full=Barrier(sync=Sync.MBARRIER, count=1, arrivals=(Arrival(PRODUCER, By.COPY),)),
        empty=Barrier(sync=Sync.MBARRIER, count=commits * (1 + clears), arrivals=arrivals, credits=stages),
        scope=_scope(mma.atom.ctas, mma.cluster[0] * mma.cluster[1]),
    )


def read_by_warps(drains: Role, stages: int, factors_bytes: int) -> Pipeline:
    """`factors`: those of a k-tile, in each CTA, which every warp that scales sums reads."""
    return Pipeline(
        name=OF_FACTORS,
        producers=(PRODUCER,),
        consumers=(drains.name,),
        holds=Item.K_TILE,
        stages=stages,
        payload_bytes=factors_bytes,
        full=Barrier(sync=Sync.MBARRIER, count=1, arrivals=(Arrival(PRODUCER, By.COPY),)),
        empty=Barrier(
            sync=Sync.MBARRIER, count=drains.warps, arrivals=(Arrival(drains.name, By.WARP),), credits=stages
        ),
    )


def _scope(multiply: int, share: int) -> Scope:
    """Return who shares a pipeline of CTAs that multiply together, if more `share` copies."""
    if share > multiply:
        return Scope.CLUSTER
    return Scope.CTA if multiply == 1 else Scope.PAIR


def drained_by_warps(role: Role, accumulator: Accumulator, ctas: int) -> Pipeline:
    """`accumulator`: sums of a tile, or of a block of K, in each of the buffers, which every warp of `role` drains.

    Those of each of `ctas` arrive.
    """
    return Pipeline(
        name=ACCUMULATOR,
        producers=(MMA,),
        consumers=(role.name,),
        holds=Item.TILE if accumulator.promotion is None else Item.K_TILE,
        stages=accumulator.buffers,
        full=Barrier(sync=Sync.MBARRIER, count=1, arrivals=(Arrival(MMA, By.MMA),)),
        empty=Barrier(
            sync=Sync.MBARRIER,
            count=role.warps * ctas,
            arrivals=(Arrival(role.name, By.WARP, ctas),),
            credits=accumulator.buffers,
        ),
        scope=_scope(ctas, ctas),
    )


def answered_tiles(readers: tuple[Role, ...]) -> Pipeline:
    """`tiles`: which tile comes next, for every warp of a CTA; the last of `readers` asks."""
    return Pipeline(
        name=TILES,
        producers=(SCHEDULER,),
        consumers=tuple(role.name for role in readers),
        holds=Item.TILE,
        stages=ANSWERS,
        payload_bytes=ANSWER_BYTES,
        full=Barrier(sync=Sync.MBARRIER, count=1, arrivals=(Arrival(SCHEDULER, By.COPY),)),
        empty=Barrier(
            sync=Sync.MBARRIER,
            count=sum(role.warps for role in readers),
            arrivals=tuple(Arrival(role.name, By.WARP) for role in readers),
            credits=ANSWERS,
        ),
    )


def multiplied_by_thread(k_blocks: int, *, scaled: bool) -> Slot:
    """A k-tile whose multiplications release its stage; before them, factors are copied if its blocks are `scaled`."""
    factors = (Step(Action.TO_TMEM),) if scaled else ()
    return (
        Step(Action.WAIT),
        *factors,
        *(Step(Action.MULTIPLY, 0, block) for block in range(k_blocks)),
        Step(Action.RELEASE),
    )


def drained(
    roles: tuple[Role, ...],
    pipelines: tuple[Pipeline, ...],
    k_blocks: int,
    sub_tiles: int,
    multiplied: Slot,
    *,
    reads_first: bool = False,
) -> KernelLoop:
    """A producer warp copies, a role multiplies into buffers of sums, and others drain them and store C.

    `multiplied` are the steps of a k-tile. The role that multiplies ends, and frees tensor memory, when all buffers are
    drained. The last sub-tile of a tile frees its buffer as soon as it is in registers; so does each k-tile, if a
    buffer holds one. Its factors are read before its sums are there if it `reads_first`.
    """
    ab, sums = (next(each for each in pipelines if each.name == name) for name in (AB, ACCUMULATOR))
    store = next((each for each in pipelines if each.name == C_STORE), None)

    def on(pipeline: str, *actions: Action) -> Section:
        return Section(tuple(Step(action, pipeline=pipeline) for action in actions))

    multiplies, begins, loads = (
        _a_buffer_for_tiles(multiplied) if sums.holds is Item.TILE else _a_buffer_for_blocks(multiplied, reads_first)
    )
    work: Slot = (*loads, Step(Action.DRAIN, pipeline=C_STORE))
    if store is not None:
        acquire = Step(Action.ACQUIRE, 1, pipeline=C_STORE)
        work = (*work, acquire, *(Step(each, pipeline=C_STORE) for each in (Action.COMMIT, Action.BULK_STORE)))
    fetched, (acquire_factors, commit_factors) = FETCHED, on(OF_FACTORS, Action.ACQUIRE, Action.COMMIT).steps
    if any(each.name == OF_FACTORS for each in pipelines):
        *before, fetch = FETCHED[0].steps
        fetched = (replace(FETCHED[0], slots=((*before, acquire_factors, commit_factors, fetch),)),)
    asks = any(each.name == TILES for each in pipelines)
    read = (on(TILES, Action.WAIT, Action.RELEASE),) if asks else ()
    ask = (Program(SCHEDULER, (on(TILES, Action.ACQUIRE, Action.COMMIT, Action.ASK), *read)),) if asks else ()
    return KernelLoop(
        stages=ab.stages,
        k_blocks=k_blocks,
        roles=roles,
        pipelines=pipelines,
        programs=(
            Program(PRODUCER, (*fetched, *read), end=() if ab.scope is Scope.CTA else (on(AB, Action.TAIL),)),
            Program(MMA, (*multiplies, *read), end=(on(ACCUMULATOR, Action.TAIL),)),
            Program(
                EPILOGUE,
                (*begins, Section(work, times=sub_tiles), *read),
                end=(on(C_STORE, Action.TAIL),) if store is not None else (),
            ),
            *ask,
        ),
        least_k_tiles=1,
    ).over_tiles()


_ACQUIRE, _COMMIT, _WAIT, _LOAD, _RELEASE = (
    Step(each, pipeline=ACCUMULATOR)
    for each in (Action.ACQUIRE, Action.COMMIT, Action.WAIT, Action.LOAD_ACCUMULATOR, Action.RELEASE)
)
"""Steps on buffers of sums."""


def _a_buffer_for_tiles(multiplied: Slot) -> tuple[Steps, Steps, Slot]:
    """Return what fills buffers, and what those who drain them do before the sub-tiles of a tile, and for each."""
    k_tiles = Range(RangeName.TURN, (multiplied,), Mark.FIRST, Mark.END)
    by_mma = Section((_ACQUIRE,)), k_tiles, Section((_COMMIT,))
    return by_mma, (Section((_WAIT,)),), (_LOAD, replace(_RELEASE, nth=Nth.LAST))


def _a_buffer_for_blocks(multiplied: Slot, reads_first: bool) -> tuple[Steps, Steps, Slot]:
    """Return the same for buffers of blocks of K, all of which are loaded, scaled and added before the sub-tiles.

    Those who add the sums wait for the factors of a block, read them, and release them.
    """
    *read, free = (Step(each, pipeline=OF_FACTORS) for each in (Action.WAIT, Action.LOAD, Action.RELEASE))
    added = (*read, free, _WAIT, _LOAD, _RELEASE) if reads_first else (read[0], _WAIT, read[1], _LOAD, free, _RELEASE)
    by_mma, by_epilogue = (
        Range(RangeName.TURN, (steps,), Mark.FIRST, Mark.END) for steps in ((_ACQUIRE, *multiplied, _COMMIT), added)
    )
    return (by_mma,), (by_epilogue,), ()


@dataclass(frozen=True, slots=True)
class TmaTmem(Bulk):
    """A warp for each of copies and multiplications, and four that drain tensor memory, a quarter of its lanes each."""

    keys: ClassVar[PartKeys] = DRAINED_BOXES
    to_copy: ClassVar[tuple[int, ...]] = ()
    least_stages: ClassVar[int] = 1
    most_stages: ClassVar[int] = staging.DEEPEST[-1]
    reserved_bytes: ClassVar[int] = BARRIERS_BYTES + ADDRESS_BYTES

    def roles(self, spec: GemmSpec, target: Target, mma: MmaPlan, estimate: int) -> Roles:
        """The warps that drain come first: warp i of a CTA reaches lanes 32 (i mod 4) and the next 31."""
        groups = mma.accumulator.threads // mma.accumulator.group_threads
        drains = Role(name=EPILOGUE, threads=mma.accumulator.threads, groups=groups)
        asks = (Role(name=SCHEDULER, threads=WARP),) if is_dynamic(spec) else ()
        return Roles(
            roles=(drains, Role(name=PRODUCER, threads=WARP), mma.role, *asks),
            registers_at_launch=estimate,
        )

    def operands(self, spec: GemmSpec, mma: MmaPlan, target: Target) -> Operands:
        """A and B, and the factors of their blocks: in atoms for the instruction, or for those who add sums."""
        choose = choose_atoms if mma.accumulator.promotion is None else choose_factors
        return (*Mainloop.operands(self, spec, mma, target), *choose(spec, mma))

    def operand(
        self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target
    ) -> staging.OperandChoices[BulkTensorCopy]:
        """The layout decides the boxes and the descriptor."""
        check_rows(spec, x)
        if x.run_elems is not None and mma.atom.ctas == PAIR and spec.epilogue.pairs is not None:
            columns = x.extents[0]  # of one member
            x = replace(x, run_elems=min(spec.epilogue.pairs.value.width or columns, columns))
        smem, described = choose_described(spec, x, mma)
        shares = mma.sharing[OPERANDS.index(x.name)]
        copy = choose_bulk_copy(spec, x, smem.value.chosen.atom, shares, of_pair=mma.atom.ctas == PAIR)
        return staging.OperandChoices(x, copy, described, smem)

    def epilogue(
        self, spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
    ) -> Choice[EpiloguePlan]:
        """Parts of a tile, a row by each thread, to leave memory for stages."""
        return choose_parted_epilogue(spec, fusion, mma, registers, stage_bytes, capacity_bytes)

    def c_store(self, mma: Role, epilogue: EpiloguePlan) -> Pipeline | None:
        """Two buffers, which the warps that drain write."""
        if epilogue.smem is None or epilogue.parts is None:
            return None
        buffers = epilogue.parts.buffers * epilogue.parts.warpgroups
        return stored_in_bulk(mma, epilogue.parts.buffers, epilogue.smem.bytes // buffers, scope=Scope.GROUP)

    def ab(self, mma: MmaPlan, stages: int, stage_bytes: int, *, clears: bool) -> Pipeline:
        """The tensor core reads a stage, in which the role that multiplies `clears` what follows a group."""
        return multiplied_in_tensor_memory(mma, stages, stage_bytes, clears=clears)

    def sums(self, mma: MmaPlan, drains: Role) -> Pipeline:
        """The tensor core fills a buffer of sums."""
        return drained_by_warps(drains, mma.accumulator, mma.atom.ctas)

    def places_of_sums(self, accumulator: Accumulator) -> tuple[Region, ...]:
        """Shared memory for sums: of tensor memory the address alone."""
        return (Region(name=ADDRESS, owner=ADDRESS, bytes=ADDRESS_BYTES, align_bytes=ADDRESS_BYTES),)

    def k_tile(self, k_blocks: int, *, scaled: bool) -> Slot:
        """The steps of a k-tile of the role that multiplies."""
        return multiplied_by_thread(k_blocks, scaled=scaled)

    def memory(self, draft: Draft) -> Memory:
        """Place C after the stages, then the barriers, and the address of tensor memory."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        stage_bytes, gaps_bytes = sum(draft.stage_bytes), staging.most_gap_bytes(draft.stage_bytes)
        of_epilogue, *_ = draft.roles.roles
        of_sums = self.places_of_sums(mma.accumulator)
        answers = ANSWERS * ANSWER_BYTES if is_dynamic(spec) else 0
        reserved = BARRIERS_BYTES + sum(each.bytes for each in of_sums) + answers
        capacity = staging.capacity_bytes(target) - gaps_bytes - reserved
        registers = draft.roles.registers_at_launch
        epilogue = self.epilogue(spec, draft.fusion, mma, registers, stage_bytes, capacity)
        c = epilogue.value.smem
        c_bytes = round_up(c.bytes, staging.SWIZZLE_PERIOD_BYTES) if c else 0
        reserved_bytes = c_bytes + reserved + gaps_bytes
        most = self._most_stages(draft)
        stages = staging.choose_stages(spec, target, draft.stage_bytes, 1, reserved_bytes, most=most)
        store = self.c_store(of_epilogue, epilogue.value)
        clears = (grouped := spec.problem.groups) is not None and grouped.of == "k"
        # Factors that an instruction reads come with A and B; those that threads read have barriers of their own.
        apart_bytes = sum(draft.stage_bytes[len(OPERANDS) :]) if mma.accumulator.promotion is not None else 0
        pipelines = (
            self.ab(mma, stages.value, stage_bytes - apart_bytes, clears=clears),
            *((read_by_warps(of_epilogue, stages.value, apart_bytes),) if apart_bytes else ()),
            self.sums(mma, of_epilogue),
            *((store,) if store else ()),
            *((answered_tiles(draft.roles.roles),) if is_dynamic(spec) else ()),
        )
        # One thread tells others by a flag that its CTA was the last.
        barriers_bytes = mbarriers_bytes(pipelines) + (staging.FLAG_BYTES if spec.schedule.slices > 1 else 0)
        regions = [
            *draft.stage_regions(stages.value, staging.SWIZZLE_PERIOD_BYTES, ALWAYS),
            *(() if c is None else (result_region(c_bytes, staging.SWIZZLE_PERIOD_BYTES),)),
            Region(name=BARRIERS, owner=BARRIERS, bytes=barriers_bytes, align_bytes=MBARRIER_BYTES),
            *of_sums,
            *((Region(name=TILES, owner=TILES, bytes=answers, align_bytes=ANSWER_BYTES),) if answers else ()),
        ]
        return Memory(stages=stages, epilogue=epilogue, regions=allocate(regions), pipelines=pipelines)

    def _most_stages(self, draft: Draft) -> int:
        """Return the most stages that have columns for their factors. Raises SpecError if the spec has more."""
        of_stage = sum(map(columns_of, draft.operands))
        if not of_stage:
            return self.most_stages
        sums = draft.mma.accumulator.buffers * draft.mma.accumulator.columns
        most, given = (COLUMNS - sums) // of_stage, draft.spec.tile.stages
        if most < max(given or 0, 1):
            raise draft.spec.error(
                "tile.stages",
                found=f"{given or 1} stages of {of_stage} columns of factors beside {sums} of sums",
                expected=f"{COLUMNS} columns of tensor memory in all: at most {plural(most, 'stage')}",
                fix=f"tile.stages = {most}" if most else "tile.cta with a smaller N or K",
            )
        return min(self.most_stages, most)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """A tile is multiplied while the previous one is drained."""
        parts = memory.epilogue.value.parts
        assert parts is not None  # sums are drained in parts
        in_tensor_memory = any(x.home is OperandSource.TMEM for x in operands)
        k_tile = self.k_tile(mma.k_blocks, scaled=in_tensor_memory)
        return drained(
            roles.roles, memory.pipelines, mma.k_blocks, parts.of_cta, k_tile, reads_first=are_held(operands)
        )
