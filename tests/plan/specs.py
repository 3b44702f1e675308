"""Specs made in one line."""

from __future__ import annotations

import re
from typing import Any

from cutegen.hardware import TARGETS
from cutegen.plan import GemmPlan
from cutegen.spec import GEMM, GemmSpec, Operand, Problem, load_spec, shipped_specs

SHIPPED_GEMMS = tuple(name for name in shipped_specs() if load_spec(name).kind == GEMM)


C_OF = {"tf32": "f32", "s8": "s32", "u8": "s32"}
"""C's type where it is not that of A."""

SHIPPED_ON = [
    (name, arch) for name in SHIPPED_GEMMS for arch, row in TARGETS.items() if row.has(*load_spec(name).instructions)
]
"""Each shipped GEMM with every target that it can be built for."""


def gemm(
    majors: str = "kkn",
    dtype: str = "f16",
    accumulator: str | None = None,
    *,
    b_dtype: str | None = None,
    c_dtype: str | None = None,
    align: tuple[int | None, int | None, int | None] = (None, None, None),
    family: str = "sm80",
    **parts: Any,
) -> GemmSpec:
    """`majors` names the contiguous mode of A, B and C; `parts` are further fields of GemmSpec."""
    a, b, c = (
        Operand(kind, major, least)
        for kind, major, least in zip(
            (dtype, b_dtype or dtype, c_dtype or C_OF.get(dtype, dtype)), majors, align, strict=True
        )
    )
    return GemmSpec(family=family, problem=Problem(a=a, b=b, c=c, accumulator=accumulator), **parts)


def fma_spec(majors: str = "kkn", dtype: str = "f32", *, align: int | None = None, **parts: Any) -> GemmSpec:
    """A spec of family simt whose C is f32."""
    return gemm(majors, dtype, c_dtype="f32", align=(align, align, align), family="simt", **parts)


def types_of(atom: str) -> tuple[str, str]:
    """(A's dtype, accumulator) of an atom by its CUTLASS name."""
    d, a, _, _ = re.findall(r"E\dM\d|[A-Z]+\d+", atom.split("_")[2])
    return a.lower(), d.lower()


def promoted_k(found: GemmPlan) -> int:
    """The K after which a plan's sums are promoted; 0 if they are not."""
    promotion = found.mma.accumulator.promotion
    return promotion.k if promotion else 0


def columns_together(spec: GemmSpec) -> int:
    """The number that N is a multiple of: those of both members of a pair, or of a block of factors of each."""
    if spec.epilogue.pairs is None:
        return 1
    return 2 * (1 if spec.problem.scale_b is None else spec.problem.scale_b.block[0])
