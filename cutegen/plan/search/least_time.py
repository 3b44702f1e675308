"""The least time of a kernel for a problem by rates alone, for kernels that no performance model describes."""

from __future__ import annotations

from math import prod

from cutegen.contract.launch import RESULT
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, SM_RATES, dtype
from cutegen.hardware.rates import ASSUMED_MMA_FLOPS
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.values.predicted_time import AT_LEAST, PredictedTime


def least_time(plan: GemmPlan, problem: ProblemShape) -> PredictedTime:
    """Return the time in which the fullest SM multiplies its tiles, or device memory moves each element once.

    The larger of the two is reached only if everything else is hidden.
    """
    gpu, (m, n, k) = GPUS[plan.target.name], plan.cta_tile
    rate = SM_RATES[plan.target.name].flops_of(plan.atom.instruction, plan.atom.a_dtype.name) or ASSUMED_MMA_FLOPS
    tiles_of_an_sm = -(-plan.launch.tiles(problem) // gpu.sms)
    multiplied_us = tiles_of_an_sm * 2 * m * n * (-(-problem.k // k) * k) / rate / gpu.clock_hz * 1e6
    tensors = (plan.launch.tensor(name) for name in (*(x.name for x in plan.operands), RESULT))
    moved_bytes = problem.batch * sum(prod(x.extents(problem)) * dtype(x.dtype).bytes for x in tensors)
    return PredictedTime(max(multiplied_us, moved_bytes / gpu.memory_bytes_per_s * 1e6), AT_LEAST, str(gpu))
