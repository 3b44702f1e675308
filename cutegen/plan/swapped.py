"""A and B exchanged: the kernel multiplies B by A, so that narrow problems have their many columns as rows.

`wgmma` has 64 rows at least and 8 columns. The kernel is planned for the transposed product, and a launch passes it B
where it reads A; all keys but the problem's and the epilogue's speak of what the kernel does.
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
    """Return the spec of a kernel that multiplies B by A: C lies as before, and is its transpose."""
    problem = spec.problem
    exchanged = replace(
        problem,
        a=_other_major(problem.b),
        b=_other_major(problem.a),
        c=_other_major(problem.c),
        residual=_other_extra(problem.residual),
        aux=_other_extra(problem.aux),
    )
    schedule = replace(spec.schedule, swap=None)
    return replace(spec, problem=exchanged, epilogue=_other_epilogue(spec.epilogue), schedule=schedule)


def shape_multiplied(problem: ProblemShape) -> ProblemShape:
    """The extents of the exchanged product."""
    return replace(problem, m=problem.n, n=problem.m)


def as_called(plan: GemmPlan, spec: GemmSpec, problem: ProblemShape | None) -> GemmPlan:
    """The kernel's plan as calls see it: C = A B, by the names that `spec` has."""
    launch = replace(plan.launch.exchanged(), epilogue=tuple(step.text for step in spec.epilogue.steps))
    decisions = (decide(), *_named_by(spec, plan.decisions))
    return replace(plan, spec=spec, problem=problem, swapped=True, decisions=decisions, launch=launch)


def as_planned(plan: GemmPlan) -> GemmPlan:
    """A plan with contract and epilogue in the kernel's own terms, where they are others than a call's."""
    if not plan.swapped:
        return plan
    decisions = _named_by(spec_of_kernel(plan), plan.decisions)
    return replace(plan, launch=plan.launch.exchanged(), decisions=decisions)


def spec_of_kernel(plan: GemmPlan) -> GemmSpec:
    """The spec of what the kernel does: it reads B as its copy lies, where there is one, and may multiply B by A."""
    read = as_read(plan.spec)
    return as_multiplied(read) if plan.swapped else read


def _named_by(spec: GemmSpec, decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """The decisions, those of the epilogue and its operands by the names and majors that `spec` has."""
    found = {each.key: each for each in choose_fusion(spec)[1]}
    return tuple(found.get(each.key, each) for each in decisions)


def _other_major(operand: Operand) -> Operand:
    return replace(operand, major=_OTHER[operand.major])


def _other_extra(extra: Extra | None) -> Extra | None:
    return extra if extra is None or extra.major is None else replace(extra, major=_OTHER[extra.major])


def _other_epilogue(epilogue: Epilogue) -> Epilogue:
    """A vector along N is one along M there."""
    ops = None if epilogue.ops is None else tuple(_other_vectors(op) for op in epilogue.ops)
    expression = None if epilogue.expression is None else _other_vectors(epilogue.expression)
    return replace(epilogue, ops=ops, expression=expression)


def _other_vectors(text: str) -> str:
    return re.sub(r"\b(bias|scale)_([mn])\b", lambda found: f"{found[1]}_{_OTHER[found[2]]}", text)


def decide(problem: ProblemShape | None = None, rejected: tuple[Rejected, ...] = ()) -> Decision:
    """Decide that A and B are exchanged, and why: the spec asks for it, or it is faster for the problem."""
    why = "rows of C are columns of an instruction, of which it may have 8, and not rows, of which it has 64"
    chosen = "true: the kernel multiplies B by A, and what it calls C is transposed"
    if problem is None:
        return Decision(KEY, chosen, f"given; {why}", given=True)
    if problem.m < WGMMA_ROWS:
        filled = f"{problem} would fill {problem.m} of the {WGMMA_ROWS} rows"
        return Decision(KEY, chosen, why, rejected=rejected, for_problem=filled)
    why = "of the least predicted time: the tile lies the other way round, and so does the order of the tiles"
    return Decision(KEY, chosen, why, rejected=rejected, for_problem=str(problem))
