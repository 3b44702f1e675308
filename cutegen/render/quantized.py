"""Fills the parts of a kernel that quantizes C: its constants, and the tensor of factors that it writes."""

from __future__ import annotations

from collections.abc import Iterable

from cutegen.algebra import size
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.contract.quantized import FLOOR, MOST, QUANTIZED_BLOCK
from cutegen.plan import GemmPlan
from cutegen.render.constants import ConstantsByDecision
from cutegen.render.python_text import constant
from cutegen.render.tensors import TensorHoles


def quantized_holes(plan: GemmPlan, tensors: Iterable[TensorHoles]) -> dict[str, TensorHoles]:
    """Return the hole of the tensor of C's factors; nothing if C is not quantized."""
    if plan.epilogue.fusion.quantization is None:
        return {}
    return {"factors_of_c": next(x for x in tensors if x.name == RESULT_FACTORS)}


def quantized_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that quantize C, and that set its factors to 0 where no group has C; nothing if it is not."""
    quantization, groups = plan.epilogue.fusion.quantization, plan.scheduler.groups
    if quantization is None:
        return ()
    rounded = ("epilogues/powers_of_two.py.j2",) if quantization.scale == "ue8m0" else ()
    cleared = ("epilogues/clear_factors.py.j2",) if groups is not None and groups.leaves_elements else ()
    return ("epilogues/quantized.py.j2", *rounded, *cleared)


def quantized_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of a quantized C, and of its factors."""
    quantization = plan.epilogue.fusion.quantization
    if quantization is None:
        return {}
    of_values, first, factors = quantization.of_values, quantization.first, quantization.factors
    return {
        "epilogue.quantize": (
            f"SCALE_C_DTYPE = cutlass.{factors.dtype.dsl_name}",
            f"SCALE_C_ALIGN_ELEMS = {factors.align_bytes // factors.dtype.bytes}",
            f"QUANTIZE_FLOOR, QUANTIZE_MOST = {FLOOR}, {MOST[plan.epilogue.dtype.name]}",
            f"QUANTIZE_COLUMNS, QUANTIZE_ROWS, QUANTIZE_LANES = {QUANTIZED_BLOCK[1]}, {size(first)}, "
            f"{quantization.lanes}",
            *constant("QUANTIZE_OF_VALUES_SHAPE", of_values.shape),
            *constant("QUANTIZE_OF_VALUES_STRIDE", of_values.stride),
            *constant("QUANTIZE_FIRST_SHAPE", first.shape),
            *constant("QUANTIZE_FIRST_STRIDE", first.stride),
        )
    }
