"""Rule for a quantized C: 8-bit floats with a factor for each 128 columns of a row, written by the same kernel.

A warpgroup stores C in parts, and a part of 128 columns has whole blocks: the largest magnitude of a row is found among
the values of four lanes, by two shuffles, before anything is rounded.
"""

from __future__ import annotations

from cutegen.algebra import Extents, Layout
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.contract.quantized import QUANTIZED_BLOCK
from cutegen.hardware import dtype
from cutegen.plan.epilogue.pairs import MATRIX_COLUMNS, tile_of_c
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpilogueTensor, Quantization
from cutegen.spec import GemmSpec
from cutegen.support.words import extents, round_up

KEY = "epilogue.quantize"
LANES = 4
"""Lanes that have the sums of a row of an instruction, two columns of each eight."""
ROWS = 2
"""Rows of a thread's sums of an instruction, r and r + 8."""


def choose_quantization(spec: GemmSpec) -> Choice[Quantization] | None:
    """Return which of a thread's values share a factor, if C is quantized."""
    if (asked := spec.epilogue.quantize) is None:
        return None
    element = dtype("f32")
    factors = EpilogueTensor(
        RESULT_FACTORS, element, spec.modes("c"), "m", element.bytes, RESULT_FACTORS, block=QUANTIZED_BLOCK
    )
    steps = QUANTIZED_BLOCK[1] // MATRIX_COLUMNS
    quantization = Quantization(
        factors=factors,
        scale=asked.scale,
        lanes=LANES,
        of_values=Layout((2, ROWS, steps), (0, 1, 0)),
        first=Layout((ROWS,), (2,)),
    )
    why = (
        f"a part of {QUANTIZED_BLOCK[1]} columns has whole blocks: the largest magnitude of a row is that of {LANES} "
        "lanes, found before values are rounded"
    )
    rejected = (Rejected("in another kernel", "it would read all of C again"),)
    chosen = f"{asked.dtype}, a factor for {extents(QUANTIZED_BLOCK)} of C, {asked.scale}"
    return Choice(quantization, Decision(KEY, chosen, why, given=True, rejected=rejected))


def check_quantized(spec: GemmSpec) -> None:
    """Raise SpecError for a schedule in which no warpgroup has whole blocks of C, and for a C without rows."""
    if spec.epilogue.quantize is None:
        return
    if spec.problem.c.major != "n":
        raise spec.error(
            "problem.c.major",
            found=f'"{spec.problem.c.major}" with {KEY}',
            expected='"n": each row has a factor for 128 columns',
            fix='major = "n"',
        )
    if spec.schedule.swap:
        raise spec.error(
            KEY,
            found="a quantized C with schedule.swap",
            expected="columns of C as columns of the instruction: as rows, those of a block are in several warps",
            fix="leave schedule.swap out",
        )
    if (grouped := spec.problem.groups) is not None and (grouped.of, grouped.layout) == ("n", "packed"):
        raise spec.error(
            KEY,
            found="a quantized C with packed groups of n",
            expected="groups of m, or padded ones: a block of 128 columns would be of two groups",
            fix='problem.groups.of = "m"',
        )
    if spec.schedule.reduction == "atomics":
        raise spec.error(
            KEY,
            found='a quantized C with schedule.reduction = "atomics"',
            expected="whole sums in one CTA before they are quantized",
            fix='reduction = "workspace"',
        )


def check_columns(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents) -> None:
    """Raise SpecError for a tile of which a warpgroup does not have whole blocks."""
    if spec.epilogue.quantize is None:
        return
    columns, block = tile_of_c(spec, cta_tile)[1], QUANTIZED_BLOCK[1]
    if columns % (block * warpgroups[1]) == 0:
        return
    of_each = f" for each of {warpgroups[1]} warpgroups along N" if warpgroups[1] > 1 else ""
    n = round_up(columns, block * warpgroups[1]) * cta_tile[1] // columns
    raise spec.error(
        "tile.cta",
        found=f"{extents(cta_tile)} with {KEY}: {columns} columns of C{of_each}",
        expected=f"a multiple of {block}, the columns that share a factor",
        fix=f"N = {n}",
    )
