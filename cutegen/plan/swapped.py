"""A kernel that reads other operands than a call passes: A and B swapped, or a transposed copy of B."""

import re
from dataclasses import replace

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware.units import WGMMA_ROWS
from cutegen.plan.contract import tensor_contract
from cutegen.plan.epilogue.store import choose_fusion
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.schedule.groups import decide_groups
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.spec import Epilogue, Extra, Factors, GemmSpec, Operand, Paired

# B passed with one major and read with the other: the kernel reads a transposed copy that calls cache.


TRANSPOSED = "problem.b.transposed"
_OTHER_MAJOR = {"n": "k", "k": "n"}


def as_read(spec: GemmSpec) -> GemmSpec:
    """Return the spec of the kernel alone, with the major of B's copy, which is always aligned."""
    b = spec.problem.b
    if b.transposed is None:
        return spec
    return replace(spec, problem=replace(spec.problem, b=Operand(b.dtype, _OTHER_MAJOR[b.major])))


def as_asked(refusal: SpecError, spec: GemmSpec) -> SpecError:
    """Return a refusal of the kernel's spec in terms of the user's spec, in which B has the other major."""
    if spec.problem.b.transposed is None or refusal.key != "problem.b.major":
        return refusal
    found = (
        f'"once", so that B, {spec.problem.b.major.upper()}-major, is read as "{_OTHER_MAJOR[spec.problem.b.major]}"'
    )
    return spec.error(TRANSPOSED, found=found, expected=refusal.expected, fix="leave transposed out")


def as_given(plan: GemmPlan, spec: GemmSpec) -> GemmPlan:
    """Return the kernel's plan with B as `spec` describes it: how a call passes it, and that a copy is kept."""
    major, read = spec.problem.b.major.upper(), plan.launch.tensor("b").major.upper()
    chosen = f"once: calls pass B {major}-major, the kernel reads a {read}-major copy"
    why = "the first call with a B makes the copy, later calls reuse it until B changes or is freed"
    return replace(
        plan,
        spec=spec,
        decisions=(Decision.as_given(TRANSPOSED, chosen, why), *plan.decisions),
        launch=replace(plan.launch, given=(tensor_contract(spec, "b"),)),
    )


# Swaps A and B: the kernel multiplies B by A, so that the columns of narrow problems become rows.
#
# `wgmma` has at least 64 rows and 8 columns. The kernel is planned for the transposed product, and a launch passes B as
# its A. All keys except the problem's and the epilogue's refer to the kernel.


SWAP = "schedule.swap"
_OTHER_MODE = {"m": "n", "n": "m", "k": "k"}


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
        scale_a=_other_factors(problem.scale_b),
        scale_b=_other_factors(problem.scale_a),
        groups=problem.groups and replace(problem.groups, of=problem.groups.value.exchanged().of),
    )
    schedule = replace(spec.schedule, swap=None, weights="a" if spec.schedule.weights == "b" else "b")
    return replace(spec, problem=exchanged, epilogue=_other_epilogue(spec.epilogue), schedule=schedule)


def shape_multiplied(problem: ProblemShape) -> ProblemShape:
    """Return the extents of the swapped product."""
    return replace(problem, m=problem.n, n=problem.m)


def as_called(plan: GemmPlan, spec: GemmSpec, problem: ProblemShape | None) -> GemmPlan:
    """Return the kernel's plan as calls see it: C = A B, with the names of `spec`."""
    launch = replace(plan.launch.exchanged(), epilogue=tuple(step.text for step in spec.epilogue.steps))
    decisions = (decide(), *_named_by(spec, plan))
    return replace(plan, spec=spec, problem=problem, swapped=True, decisions=decisions, launch=launch)


def as_planned(plan: GemmPlan) -> GemmPlan:
    """Return a plan with contract and epilogue in the kernel's own terms, if they differ from a call's."""
    if not plan.swapped:
        return plan
    decisions = _named_by(spec_of_kernel(plan), plan)
    return replace(plan, launch=plan.launch.exchanged(), decisions=decisions)


def spec_of_kernel(plan: GemmPlan) -> GemmSpec:
    """Return the spec of the kernel: it reads B's transposed copy, if there is one, and may multiply B by A."""
    read = as_read(plan.spec)
    return as_multiplied(read) if plan.swapped else read


def _named_by(spec: GemmSpec, plan: GemmPlan) -> tuple[Decision, ...]:
    """Return a plan's decisions; those of groups, the epilogue and its operands have the names and majors of `spec`."""
    _, of_epilogue = choose_fusion(spec, by_rows=plan.mma.accumulator.drained_by_rows)
    found = {each.key: each for each in (*decide_groups(spec), *of_epilogue)}
    return tuple(found.get(each.key, each) for each in plan.decisions)


def _other_major(operand: Operand) -> Operand:
    return replace(operand, major=_OTHER_MODE[operand.major])


def _other_factors(factors: Factors | None) -> Factors | None:
    if factors is None or factors.major is None:
        return factors
    return replace(factors, major=_OTHER_MODE[factors.major])


def _other_extra(extra: Extra | None) -> Extra | None:
    return extra if extra is None or extra.major is None else replace(extra, major=_OTHER_MODE[extra.major])


def _other_epilogue(epilogue: Epilogue) -> Epilogue:
    """Return the swapped name: a vector along N is one along M in the kernel."""
    ops = None if epilogue.ops is None else tuple(_other_vectors(op) for op in epilogue.ops)
    expression = None if epilogue.expression is None else _other_vectors(epilogue.expression)
    pairs = None if epilogue.pairs is None else Paired.ordered_as(epilogue.pairs.value.exchanged())
    return replace(epilogue, ops=ops, expression=expression, pairs=pairs)


def _other_vectors(text: str) -> str:
    return re.sub(r"\b(bias|scale)_([mn])\b", lambda found: f"{found[1]}_{_OTHER_MODE[found[2]]}", text)


def decide(problem: ProblemShape | None = None, rejected: tuple[Rejected, ...] = ()) -> Decision:
    """Decide that A and B are swapped, and why: the spec requests it, or it is faster for the problem."""
    why = "rows of C become columns of an instruction, which can be as few as 8, instead of its 64 rows"
    chosen = "true: the kernel multiplies B by A, and its C is transposed"
    if problem is None:
        return Decision.as_given(SWAP, chosen, why)
    if problem.m < WGMMA_ROWS:
        filled = f"{problem} would fill {problem.m} of the {WGMMA_ROWS} rows"
        return Decision(SWAP, chosen, why, rejected=rejected, for_problem=filled)
    why = "the lowest predicted time: the tile is transposed, and so is the order of the tiles"
    return Decision(SWAP, chosen, why, rejected=rejected, for_problem=str(problem))
