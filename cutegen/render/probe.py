"""Fills the template of a probe: the constants of the loads, each with its decision as the comment."""

from dataclasses import dataclass
from typing import Any

from cutegen.plan import ProbePlan
from cutegen.plan.values.path import OperandPath
from cutegen.render import threads
from cutegen.render.constants import MEMORY, Constants, head, memory_constants, shared_constants, united
from cutegen.render.holes import fragment_context, fragment_parts, mma_imports, own_operation, stage_holes
from cutegen.render.python_text import comment, docstring
from cutegen.render.spec_lines import spec_lines


@dataclass(frozen=True, slots=True)
class ProbedHoles:
    """Holes in the template's text, not its constants, for what it writes out of A or B."""

    stride: str
    transposed: str
    values: int
    bits: int

    @property
    def integer(self) -> str:
        """PyTorch's integer of an element's width."""
        return f"int{self.bits}"


def context(plan: ProbePlan) -> dict[str, Any]:
    """Return the template's holes."""
    loads = threads.settled(plan.gemm, multiplies=False)
    by_ldmatrix = all(x.s2r.by_ldmatrix for x in plan.gemm.operands)
    settled = united(shared_constants(plan.gemm), loads, {MEMORY: memory_constants(plan.gemm)})
    return {
        "plan": plan,
        "title": docstring(f"{plan.kernel_name}: {plan.spec.description or 'the loads of a GEMM'}"),
        "constants": [
            x.text for x in (*(_operand_constants(plan, x) for x in plan.operands), *head(plan.decisions, settled))
        ],
        "parts": (*own_operation(plan.gemm), "mainloops/stages.py.j2", *fragment_parts(plan.gemm)),
        "imports": [
            "from cutlass import Int32, Int64",
            *mma_imports(plan.gemm),
            f"from cutlass.cute.nvgpu import {'warp' if by_ldmatrix else 'CopyUniversalOp, warp'}",
        ],
        **stage_holes(plan.gemm),
        "spec_lines": spec_lines(plan),
        "loads": threads.loads(plan.gemm),
        **fragment_context(plan.gemm),
        "a": _operand_holes(plan, plan.gemm.a),
        "b": _operand_holes(plan, plan.gemm.b),
    }


def _major(plan: ProbePlan, operand: OperandPath) -> str:
    """Return the contiguous mode of an operand as a call passes it."""
    return next(tensor.major for tensor in plan.launch.tensors if tensor.name == operand.name)


def _operand_constants(plan: ProbePlan, operand: OperandPath) -> Constants:
    x = operand.name
    said = f"problem.{x}: {operand.dtype.name}, {_major(plan, operand)} is contiguous in ({', '.join(operand.modes)})"
    return Constants(comment(said), (f"{x.upper()}_DTYPE = cutlass.{operand.dtype.dsl_name}",))


def _operand_holes(plan: ProbePlan, operand: OperandPath) -> ProbedHoles:
    rows, leading = _major(plan, operand) == "k", f"ld{operand.name}"
    return ProbedHoles(
        stride=f"({leading}, 1)" if rows else f"(1, {leading})",
        transposed=".T.contiguous()" if rows else "",
        values=plan.fragments(operand).values,
        bits=operand.dtype.bits,
    )
