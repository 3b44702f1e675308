"""Loops by the number of their stages and k-blocks, with roles of usual sizes."""

from __future__ import annotations

from cutegen.plan.kernel.accumulator import Promotion
from cutegen.plan.kernel.pipeline import MMA, PRODUCER, THREADS, Role, Turns
from cutegen.plan.kernel.program import Action, KernelLoop
from cutegen.plan.mainloop import programs

ALL = Role(name=THREADS, threads=128)
FETCH = Role(name=PRODUCER, threads=32)
STAGE_BYTES = 1024


def warpgroups(turns: Turns | None = None) -> Role:
    """Two consumer warpgroups."""
    return Role(name=MMA, threads=256, groups=2, turns=turns)


def pipelined(stages: int, k_blocks: int, k_tiles_per_turn: int, fetches: tuple[Action, ...]) -> KernelLoop:
    ab = programs.copied_by_threads(ALL, stages, STAGE_BYTES)
    return programs.pipelined(ALL, ab, k_blocks, k_tiles_per_turn, fetches)


def through_registers(stages: int) -> KernelLoop:
    return programs.through_registers(ALL, programs.copied_by_threads(ALL, stages, STAGE_BYTES))


def produced(stages: int, k_blocks: int) -> KernelLoop:
    mma = Role(name=MMA, threads=128)
    return programs.produced((mma, FETCH), (programs.copied_in_bulk(mma, stages, STAGE_BYTES),), k_blocks)


def multiplied_from_shared(stages: int, k_blocks: int, turns: Turns | None = None) -> KernelLoop:
    mma = warpgroups(turns)
    pipelines = (programs.copied_in_bulk(mma, stages, STAGE_BYTES), *programs.turns(mma))
    return programs.multiplied_from_shared((mma, FETCH), pipelines, k_blocks)


def promoted(stages: int, k_blocks: int, promotion: Promotion) -> KernelLoop:
    mma = warpgroups()
    ab = programs.copied_in_bulk(mma, stages, STAGE_BYTES)
    return programs.promoted((mma, FETCH), (ab,), k_blocks, promotion=promotion)
