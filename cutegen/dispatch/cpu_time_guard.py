"""Estimates how long the executor would take for a call, before it begins."""

import logging

from cutegen.contract.problem import ProblemShape
from cutegen.dispatch.resolve import Resolved
from cutegen.errors import RequestError

_LOG = logging.getLogger("cutegen.matmul")
SMALL = 1 << 22
"""Multiply-adds of a call that the executor finishes within seconds."""


def guard_cpu_time(resolved: Resolved) -> None:
    """Announce a call that takes minutes on the CPU. Raises RequestError for one that takes hours."""
    request, product = resolved.request, resolved.problem
    problem = ProblemShape(product.m, product.n, product.k, product.batches)
    if problem.batch * problem.m * problem.n * problem.k <= SMALL:
        return
    try:
        from cutegen.dispatch.model import planned
        from cutegen.verify.cost_estimate import LONG_S, LONGEST_S, duration, estimate_s
    except ImportError:  # a run-only installation cannot plan, so it gives no estimate
        return

    seconds = estimate_s(planned(request), problem)
    if seconds > LONGEST_S:
        raise RequestError(
            f"matmul: found {problem}, about {duration(seconds)} on the CPU, which executes kernels instruction by "
            f"instruction; expected at most {duration(LONGEST_S)}; use tensors on a GPU, or torch's on the CPU"
        )
    if seconds > LONG_S:
        _LOG.warning("matmul: %s takes about %s on the CPU", problem, duration(seconds))
