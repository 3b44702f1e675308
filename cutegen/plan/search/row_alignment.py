"""Alignment of the rows of A, B and C in global memory: a row is what is contiguous, along an operand's major mode.

Rows that do not begin on a line of the L2 cache are read as more sectors, and lines that two rows share are requested
twice. In a problem of contiguous matrices, a row begins wherever the extent of the major mode puts it.
"""

from __future__ import annotations

from typing import TypeAlias

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import dtype
from cutegen.hardware.units import LINE_BYTES
from cutegen.spec import GemmSpec
from cutegen.spec.values import Mode

Majors: TypeAlias = "tuple[Mode, Mode, Mode]"
"""Contiguous modes of A, B and C, of the product that a kernel multiplies."""
K_MAJOR: Majors = ("k", "k", "n")
ElementBytes: TypeAlias = "tuple[int, int]"
"""Bytes of an element of A, and of B."""
ALIGNMENTS = (LINE_BYTES, LINE_BYTES // 2, LINE_BYTES // 4, 1)


def majors_of(spec: GemmSpec) -> Majors:
    """Return the contiguous modes of the spec's operands and result."""
    return spec.problem.a.major, spec.problem.b.major, spec.problem.c.major


def element_bytes_of(spec: GemmSpec) -> ElementBytes:
    """Return the bytes of an element of A, and of B."""
    return dtype(spec.problem.a.dtype).bytes, dtype(spec.problem.b.dtype).bytes


def is_k_major(spec: GemmSpec) -> bool:
    """Return whether K is contiguous in A and in B."""
    return majors_of(spec)[:2] == K_MAJOR[:2]


def shares_aligned(
    majors: Majors, problem: ProblemShape, element_bytes: ElementBytes, sizes: tuple[float, float]
) -> tuple[float, ...]:
    """Return the shares of A and B whose rows are aligned to a line, half of one, a quarter, and less.

    `sizes` are the relative sizes of what is read of A and B.

    >>> shares_aligned(("k", "n", "n"), ProblemShape(8, 96, 64), (2, 2), (1.0, 3.0))
    (0.25, 0.75, 0.0, 0.0)
    """
    a_bytes, b_bytes = _row_bytes(majors, problem, element_bytes)
    of_a, of_b = _alignment(a_bytes), _alignment(b_bytes)
    if of_a == of_b:
        return tuple(float(each == of_a) for each in ALIGNMENTS)
    shares = {of_a: sizes[0] / sum(sizes), of_b: sizes[1] / sum(sizes)}
    return tuple(shares.get(each, 0.0) for each in ALIGNMENTS)


def unaligned_operands(majors: Majors, problem: ProblemShape, element_bytes: ElementBytes) -> bool:
    """Return whether rows of A or of B are not aligned to lines."""
    return any(row_bytes % LINE_BYTES for row_bytes in _row_bytes(majors, problem, element_bytes))


def torn_results(majors: Majors, problem: ProblemShape, result_bytes: int) -> float:
    """Return 1 if rows of C are not aligned to lines, else 0."""
    return float(problem.extents[majors[2]] * result_bytes % LINE_BYTES > 0)


def _row_bytes(majors: Majors, problem: ProblemShape, element_bytes: ElementBytes) -> tuple[int, int]:
    extents = problem.extents
    return extents[majors[0]] * element_bytes[0], extents[majors[1]] * element_bytes[1]


def _alignment(row_bytes: int) -> int:
    return next(each for each in ALIGNMENTS if row_bytes % each == 0)
