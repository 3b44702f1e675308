"""Which kernel takes part: what cutegen chooses by a problem's extents, before anything is measured."""

from __future__ import annotations

from cutegen.api import compile as compile_spec
from cutegen.contract.problem import ProblemShape
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Operand, Problem

ROW = Operand("f16", "k")
SPEC = GemmSpec(problem=Problem(a=ROW, b=ROW, c=Operand("f16", "n"), accumulator="f32"), name="choice")
"""f16 TN with f32 sums, and nothing else said."""


def chosen(problem: ProblemShape) -> Kernel:
    """The kernel for `problem`."""
    return compile_spec(SPEC, problem=(problem.m, problem.n, problem.k))
