"""Which kernel takes part: what cutegen chooses by a problem's extents, before anything is measured."""

from __future__ import annotations

from cutegen.spec import GemmSpec, Operand, Problem

ROW = Operand("f16", "k")
SPEC = GemmSpec(problem=Problem(a=ROW, b=ROW, c=Operand("f16", "n"), accumulator="f32"), name="choice")
"""f16 TN with f32 sums, and nothing else said."""
