"""The kernel for operands as they are in memory: without a copy, unlike calls of `matmul`, which may make one."""

from dataclasses import replace

from cutegen.dispatch.formula import Formula
from cutegen.dispatch.grouped import GroupedTerms, resolve_groups
from cutegen.dispatch.model import spec_of
from cutegen.dispatch.request import Request
from cutegen.dispatch.resolve import CallTarget, Given, resolve
from cutegen.errors import OperandError, RequestError
from cutegen.hardware import TARGETS
from cutegen.hardware.targeting import present_gpu_name, present_target
from cutegen.plan import GemmPlan
from cutegen.tuned.answer import plan

ENDS = "offs"
"""Name of the ends of groups among a call's tensors."""


def request_in_place(given: Given, target: str) -> Request:
    """Return the request of a product into `out`, of groups if the ends `offs` are among the tensors.

    Raises RequestError if the tensors do not fit together, if no kernel reads or writes one of them as it is, or if
    there is nothing to compute.
    """
    here = present_target()
    where = CallTarget(target, present_gpu_name() if here is TARGETS[target] else None)
    of_groups = ENDS in given
    resolved = resolve_groups(given, GroupedTerms(keep=True), where) if of_groups else resolve(given, Formula(), where)
    for name, why in resolved.copies.items():
        raise OperandError(operand=name, found=f"a tensor to copy: {why}", expected="one that a kernel takes as it is")
    if resolved.empty or resolved.called.empty:
        raise RequestError(f"operators: found the empty problem {resolved.called}; expected elements to compute")
    return resolved.request


def plan_of(request: Request) -> GemmPlan:
    """Return the plan for a request: of a tuning record of its GPU, else the model's. Raises SpecError."""
    made = plan(spec_of(request), TARGETS[request.target], request.problem)
    assert isinstance(made, GemmPlan)
    return made


def serves(had: Request, other: Request) -> bool:
    """Return whether a kernel for one request serves another: for any problem, and operands aligned at least as much.

    >>> from cutegen.contract.problem import ProblemShape
    >>> from cutegen.dispatch.request import Matrix
    >>> k, n, problem = Matrix("f16", "k", 8), Matrix("f16", "n", 8), ProblemShape(64, 64, 64)
    >>> had = Request(a=k, b=k, c=n, problem=problem, target="sm_80")
    >>> more, less = (replace(had, a=Matrix("f16", "k", each), problem=ProblemShape(8, 8, 8)) for each in (16, 4))
    >>> serves(had, more), serves(had, less)
    (True, False)
    """
    names = ("a", "b", "c")
    aligned = all(getattr(other, name).align_bytes % getattr(had, name).align_bytes == 0 for name in names)
    same = {name: replace(getattr(other, name), align_bytes=getattr(had, name).align_bytes) for name in names}
    return aligned and replace(other, **same, problem=had.problem) == had
