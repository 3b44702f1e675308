"""What the models of time say of the sweep's kernels, by their settings."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, target
from cutegen.plan.search.bulk import CANDIDATES as BULK_TILES
from cutegen.plan.search.bulk import H200 as BULK
from cutegen.plan.search.bulk import work_of as bulk_work
from cutegen.plan.search.cp_async import CANDIDATES as CP_ASYNC_TILES
from cutegen.plan.search.cp_async import H200 as CP_ASYNC
from cutegen.plan.search.cp_async import work_of as cp_async_work
from cutegen.plan.search.problem import Candidate
from cutegen.plan.search.tile_model import Work
from cutegen.plan.search.tile_model import estimate as estimate_tiles
from cutegen.plan.search.warpgroup_model import WarpgroupWork
from cutegen.plan.search.warpgroup_model import estimate as estimate_warpgroups
from cutegen.plan.search.warpgroup_rows import H200, MEASURED, KernelConfig, as_nearest, in_slices
from cutegen.plan.search.warpgroups import candidate_of, compared_rows, estimate_of
from cutegen.plan.search.warpgroups import work_of as warpgroup_work
from tests.gpu.settings import TARGET, Setting, filled

_OPEN = Setting(family="sm90", cta=(64, 64, 64)).open_spec


@cache
def row_of(setting: Setting) -> KernelConfig:
    """A kernel of warpgroups as a row; its correction is that of the row that plans choose from, if there is one."""
    assert setting.warps is not None
    along_k = (setting.clustered or setting.slices) if setting.reduction == "cluster" else 1
    cluster = (*setting.cluster, along_k)
    consumers = "pingpong" if setting.consumers == "pingpong" else "cooperative"
    found = KernelConfig(setting.cta, setting.warps, consumers, cluster, setting.swap, setting.slices)
    if along_k == 1 < setting.slices:
        return in_slices(replace(found, slices=1), setting.slices)
    return _measured().get(found.kernel) or as_nearest(found)


@cache
def _measured() -> dict[tuple[object, ...], KernelConfig]:
    """Rows that plans choose from, by their kernels."""
    return {row.kernel: row for row in MEASURED}


@cache
def work_of(setting: Setting) -> Work | WarpgroupWork:
    """A kernel as its family's model sees it."""
    device, spec = target(TARGET), setting.open_spec
    if setting.family == "sm90":
        row = row_of(setting)
        return warpgroup_work(spec, device, candidate_of(spec, device, row), row)
    assert setting.warps is not None
    assert setting.stages is not None
    compared = CP_ASYNC_TILES if setting.family == "sm80" else BULK_TILES
    overall = next((each.overall for each in compared if each.cta == setting.cta), 1.0)
    candidate = Candidate(setting.cta, (*setting.warps, 1), setting.stages, overall=overall)
    if setting.family == "sm80":
        return cp_async_work(spec, device, candidate, setting.slices)
    return bulk_work(spec, device, candidate)


def setting_of(row: KernelConfig) -> Setting:
    """The kernel of a row, in the default order of the tiles."""
    along_k = row.cluster[2]
    return filled(
        Setting(
            family="sm90",
            cta=row.cta,
            consumers=row.consumers,
            cluster=row.cluster[:2],
            slices=row.slices,
            reduction="cluster" if along_k > 1 else "workspace",
            clustered=along_k if 1 < along_k < row.slices else None,
            swap=row.swap,
        )
    )


@cache
def of_plans() -> tuple[Setting, ...]:
    """The kernels of warpgroups that plans choose from."""
    return tuple(map(setting_of, MEASURED))


@cache
def _compared(shape: tuple[int, int, int]) -> dict[tuple[object, ...], KernelConfig]:
    """Rows of warpgroups that plans compare for a problem, by their kernels."""
    return {row.kernel: row for row in compared_rows(_OPEN, target(TARGET), ProblemShape(*shape))}


def compared_us(setting: Setting, shape: tuple[int, int, int]) -> float:
    """The same of a kernel that plans compare for the problem, whatever the family; infinity of others."""
    if setting.family != "sm90":
        return estimated_us(setting, shape)
    row = _compared(shape).get(row_of(setting).kernel)
    if row is None:
        return math.inf
    device, spec = target(TARGET), setting.open_spec
    candidate = candidate_of(spec, device, row)
    return estimate_of(spec, device, ProblemShape(*shape), row, candidate, candidate).us


def has_own_corrections(setting: Setting, shape: tuple[int, int, int]) -> bool:
    """Return whether plans compare a kernel for the problem by the corrections of its own row."""
    row = row_of(setting) if setting.family == "sm90" else None
    return row is None or _compared(shape).get(row.kernel) == row


def since_in_turns(setting: Setting, shape: tuple[int, int, int]) -> float:
    """What a kernel takes of the time that it took when warpgroups multiplied the last k-tiles side by side."""
    work = work_of(setting)
    if not isinstance(work, WarpgroupWork) or not work.ends_in_turns:
        return 1.0
    before = _estimated_us(replace(work, ends_in_turns=False), setting, shape)
    return _estimated_us(work, setting, shape) / before


def estimated_us(setting: Setting, shape: tuple[int, int, int]) -> float:
    """Microseconds of a launch among others, as the kernel's family has it."""
    m, n, k = shape
    work, gpu = work_of(setting), GPUS[TARGET]
    if isinstance(work, WarpgroupWork):
        return _estimated_us(work, setting, shape)
    return estimate_tiles(work, ProblemShape(m, n, k), gpu, CP_ASYNC if setting.family == "sm80" else BULK).us


def _estimated_us(work: WarpgroupWork, setting: Setting, shape: tuple[int, int, int]) -> float:
    m, n, k = shape
    problem = ProblemShape(n, m, k) if setting.swap else ProblemShape(m, n, k)
    return estimate_warpgroups(work, problem, GPUS[TARGET], H200).us
