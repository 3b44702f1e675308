"""Fills the parts of a kernel that quantizes C: its constants, and the tensor of factors that it writes."""

from collections.abc import Iterable
from dataclasses import dataclass

from cutegen.algebra import offsets, size
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.contract.problem import QUANTIZED_FLOOR, QUANTIZED_MOST
from cutegen.hardware.units import WARP, WARPGROUP
from cutegen.plan import GemmPlan
from cutegen.render.constants import ConstantsByDecision
from cutegen.render.pairs import pair_holes
from cutegen.render.python_text import constant
from cutegen.render.tensors import TensorHoles


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedHoles:
    """Names and expressions of a quantized C.

    Blocks are along the mode `of_blocks` of its factors, of which a group clears those at `cleared`. If several `warps`
    have a block, they meet at a `barrier` of so many `threads`, and find the largest magnitudes of a tile at `place`; a
    part is at `rows` and `columns` of the tile, in parts.
    """

    of_blocks: int
    cleared: str
    warps: int
    barrier: str
    threads: str
    place: str
    rows: str
    columns: str


def quantized_holes(plan: GemmPlan, tensors: Iterable[TensorHoles]) -> dict[str, TensorHoles | QuantizedHoles]:
    """Return the holes of a quantized C, and of the tensor of its factors; nothing if it is not."""
    if (quantization := plan.epilogue.fusion.quantization) is None:
        return {}
    alone = plan.mma.role.alternates
    rows, columns = plan.epilogue.fusion.tile_of_c(plan.cta_tile[:2])
    largest = quantization.largest_bytes((rows, columns)) // quantization.factors.dtype.bytes
    return {
        "factors_of_c": next(x for x in tensors if x.name == RESULT_FACTORS),
        "quantized": QuantizedHoles(
            of_blocks=0 if quantization.of_rows else 1,
            cleared="block, row" if quantization.of_rows else "row, block",
            warps=quantization.warps,
            barrier="1 + group" if alone else "0",
            threads=str(WARPGROUP) if alone else "MMA_WARPS * 32",
            place=f" + group * {largest}" if alone else "",
            rows=f"part_m % ({pair_holes(plan).rows_of_tile} // PART_M)",
            columns="part_n % (CTA_N // PART_N)",
        ),
    }


def quantized_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that quantize C, and that set its factors to 0 where no group has C; nothing if it is not."""
    quantization, groups = plan.epilogue.fusion.quantization, plan.scheduler.groups
    if quantization is None:
        return ()
    rounded = ("epilogues/powers_of_two.py.j2",) if quantization.scale == "ue8m0" else ()
    cleared = ("epilogues/clear_factors.py.j2",) if groups is not None and groups.leaves_elements else ()
    quantized = "epilogues/quantized_rows.py.j2" if quantization.of_rows else "epilogues/quantized.py.j2"
    return ("epilogues/factor_of.py.j2", quantized, *rounded, *cleared)


def quantized_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of a quantized C, and of its factors."""
    quantization = plan.epilogue.fusion.quantization
    if quantization is None:
        return {}
    assert plan.epilogue.part is not None
    (of_values, first), factors = quantization.lines(plan.epilogue.part[1]), quantization.factors
    lanes = tuple(1 << bit for bit in range(WARP.bit_length() - 1) if offsets(quantization.lanes).max() >> bit & 1)
    rows = (f"QUANTIZE_WARPS, QUANTIZE_ROWS = {quantization.warps}, {quantization.block[0]}",)
    return {
        "epilogue.quantize": (
            f"SCALE_C_DTYPE = cutlass.{factors.dtype.dsl_name}",
            f"SCALE_C_ALIGN_ELEMS = {factors.align_bytes // factors.dtype.bytes}",
            f"QUANTIZE_FLOOR, QUANTIZE_MOST = {QUANTIZED_FLOOR}, {QUANTIZED_MOST[plan.epilogue.dtype.name]}",
            *(rows if quantization.of_rows else ()),
            f"QUANTIZE_LANES, QUANTIZE_LINES = {lanes}, {size(first)}",
            *constant("QUANTIZE_OF_VALUES_SHAPE", of_values.shape),
            *constant("QUANTIZE_OF_VALUES_STRIDE", of_values.stride),
            *constant("QUANTIZE_FIRST_SHAPE", first.shape),
            *constant("QUANTIZE_FIRST_STRIDE", first.stride),
        )
    }
