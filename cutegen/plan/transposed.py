"""B passed with one major and read with the other: the kernel reads a transposed copy that calls cache."""

from __future__ import annotations

from dataclasses import replace

from cutegen.errors import SpecError
from cutegen.plan.contract import tensor_contract
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec, Operand

KEY = "problem.b.transposed"
_OTHER = {"n": "k", "k": "n"}


def as_read(spec: GemmSpec) -> GemmSpec:
    """Return the spec of the kernel alone, with the major of B's copy, which is always aligned."""
    b = spec.problem.b
    if b.transposed is None:
        return spec
    return replace(spec, problem=replace(spec.problem, b=Operand(b.dtype, _OTHER[b.major])))


def as_asked(refusal: SpecError, spec: GemmSpec) -> SpecError:
    """Return a refusal of the kernel's spec in terms of the user's spec, in which B has the other major."""
    if spec.problem.b.transposed is None or refusal.key != "problem.b.major":
        return refusal
    found = f'"once", so that B, {spec.problem.b.major.upper()}-major, is read as "{_OTHER[spec.problem.b.major]}"'
    return spec.error(KEY, found=found, expected=refusal.expected, fix="leave transposed out")


def as_given(plan: GemmPlan, spec: GemmSpec) -> GemmPlan:
    """Return the kernel's plan with B as `spec` describes it: how a call passes it, and that a copy is kept."""
    major, read = spec.problem.b.major.upper(), plan.launch.tensor("b").major.upper()
    chosen = f"once: calls pass B {major}-major, the kernel reads a {read}-major copy"
    why = "the first call with a B makes the copy, later calls reuse it until B changes or is freed"
    return replace(
        plan,
        spec=spec,
        decisions=(Decision.as_given(KEY, chosen, why), *plan.decisions),
        launch=replace(plan.launch, given=(tensor_contract(spec, "b"),)),
    )
