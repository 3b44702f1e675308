"""Swaps A and B: the kernel multiplies B by A, so that the columns of narrow problems become rows.

`wgmma` has at least 64 rows and 8 columns. The kernel is planned for the transposed product, and a launch passes B as
its A. All keys except the problem's and the epilogue's refer to the kernel.
"""

from __future__ import annotations

import re
from dataclasses import replace

from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WGMMA_ROWS
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.rules.fusion import choose_fusion
from cutegen.plan.transposed import as_read
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.spec import Epilogue, Extra, GemmSpec, Operand

KEY = "schedule.swap"
_OTHER = {"m": "n", "n": "m", "k": "k"}


def as_multiplied(spec: GemmSpec) -> GemmSpec:
    """Return the spec of a kernel that multiplies B by A: C keeps its place in memory, and is the transpose."""
    problem = spec.problem
    exchanged = replace(
        problem,
        a=_other_major(problem.b),
        b=_other_major(problem.a),
        c=_other_major(problem.c),
        residual=_other_extra(problem.residual),
        aux=_other_extra(problem.aux),
        groups=problem.groups and replace(problem.groups, of=problem.groups.value.exchanged().of),
    )
    schedule = replace(spec.schedule, swap=None)
    return replace(spec, problem=exchanged, epilogue=_other_epilogue(spec.epilogue), schedule=schedule)


def shape_multiplied(problem: ProblemShape) -> ProblemShape:
    """Return the extents of the swapped product."""
    return replace(problem, m=problem.n, n=problem.m)


def as_called(plan: GemmPlan, spec: GemmSpec, problem: ProblemShape | None) -> GemmPlan:
    """Return the kernel's plan as calls see it: C = A B, with the names of `spec`."""
    launch = replace(plan.launch.exchanged(), epilogue=tuple(step.text for step in spec.epilogue.steps))
    decisions = (decide(), *_named_by(spec, plan.decisions))
    return replace(plan, spec=spec, problem=problem, swapped=True, decisions=decisions, launch=launch)


def as_planned(plan: GemmPlan) -> GemmPlan:
    """Return a plan with contract and epilogue in the kernel's own terms, if they differ from a call's."""
    if not plan.swapped:
        return plan
    decisions = _named_by(spec_of_kernel(plan), plan.decisions)
    return replace(plan, launch=plan.launch.exchanged(), decisions=decisions)


def spec_of_kernel(plan: GemmPlan) -> GemmSpec:
    """Return the spec of the kernel: it reads B's transposed copy, if there is one, and may multiply B by A."""
    read = as_read(plan.spec)
    return as_multiplied(read) if plan.swapped else read


def _named_by(spec: GemmSpec, decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """Return the decisions; those of the epilogue and its operands have the names and majors of `spec`."""
    found = {each.key: each for each in choose_fusion(spec)[1]}
    return tuple(found.get(each.key, each) for each in decisions)


def _other_major(operand: Operand) -> Operand:
    return replace(operand, major=_OTHER[operand.major])


def _other_extra(extra: Extra | None) -> Extra | None:
    return extra if extra is None or extra.major is None else replace(extra, major=_OTHER[extra.major])


def _other_epilogue(epilogue: Epilogue) -> Epilogue:
    """Return the swapped name: a vector along N is one along M in the kernel."""
    ops = None if epilogue.ops is None else tuple(_other_vectors(op) for op in epilogue.ops)
    expression = None if epilogue.expression is None else _other_vectors(epilogue.expression)
    return replace(epilogue, ops=ops, expression=expression)


def _other_vectors(text: str) -> str:
    return re.sub(r"\b(bias|scale)_([mn])\b", lambda found: f"{found[1]}_{_OTHER[found[2]]}", text)


def decide(problem: ProblemShape | None = None, rejected: tuple[Rejected, ...] = ()) -> Decision:
    """Decide that A and B are swapped, and why: the spec requests it, or it is faster for the problem."""
    why = "rows of C become columns of an instruction, which can be as few as 8, instead of its 64 rows"
    chosen = "true: the kernel multiplies B by A, and its C is transposed"
    if problem is None:
        return Decision.as_given(KEY, chosen, why)
    if problem.m < WGMMA_ROWS:
        filled = f"{problem} would fill {problem.m} of the {WGMMA_ROWS} rows"
        return Decision(KEY, chosen, why, rejected=rejected, for_problem=filled)
    why = "the lowest predicted time: the tile is transposed, and so is the order of the tiles"
    return Decision(KEY, chosen, why, rejected=rejected, for_problem=str(problem))
