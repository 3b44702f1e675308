"""`cutegen.scaled_grouped_mm`: products of groups of 8-bit floats with their factors, with torch's argument names.

y = cutegen.scaled_grouped_mm(x8, w8.mT, sa, "BlockWise1x128", sb, "BlockWise128x128", offs=ends)
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from cutegen.dispatch.grouped import check_k
from cutegen.errors import OperandError
from cutegen.grouped_mm import grouped_mm
from cutegen.scaled_mm import (
    OF_BLOCKS,
    TENSOR,
    check_contraction,
    check_tensors,
    first_name,
    of_8_bits,
    only,
    oriented,
    recipes,
    swizzle_names,
)


def scaled_grouped_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    offs: Any = None,
    output_dtype: Any = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    cu_seqlens: Any = None,
    sizes: Any = None,
    activation: Any = None,
    pairs: str | int | None = None,
    first: str | None = None,
    tail: Literal["zero", "keep"] = "zero",
    expected: int | None = None,
    out: Any = None,
    quantize: str | None = None,
) -> Any:
    """`cutegen.grouped_mm` of scaled operands of 8-bit floats, as torch.nn.functional.scaled_grouped_mm.

    Forms and groups are those of `grouped_mm`. A recipe is one of torch.nn.functional.ScalingType, or its name, and
    factors are f32. Those of rows are oriented as torch's, of blocks as in `scaled_mm`, for each matrix of the operand:

    | recipe             | scale_a                                  | scale_b                                |
    |--------------------|------------------------------------------|----------------------------------------|
    | "TensorWise"       | one element, or (G,)                     | one element, or (G,)                   |
    | "RowWise"          | (R,); (G, M) of 3 dimensions; (G M,)     | (G, N); (N,) of 2 dimensions; (G N,)   |
    | "BlockWise1x128"   | (R, K/128), (G, R, K/128)                | (G, N, K/128)                          |
    | "BlockWise128x128" | (G, K/128, R/128), padded groups         | (G, K/128, N/128), K first             |

    (G M,) and (G N,) are those of parts of K, whose groups have a row of factors each. (G,) is a factor for each matrix
    of a 3-dimensional operand, or for each part of K. Extents are rounded up, and K first may be padded to a multiple
    of 4. Rows need no padding, and M, N and K may be anything.

    "BlockWise1x32" (mxf8, mxf4) and "BlockWise1x16" (nvf4, alone or in a list with "TensorWise") are those of
    `scaled_mm`, for groups on the CPU and on a Blackwell. In "SWIZZLE_32_4_4" the factors of packed
    rows are those of each group filled up to 128 rows, one group after another, as `cutegen.quantize(..., offs=)` makes
    them, with room for any sizes; those of fewer atoms are copied at each call. Those of a 3-dimensional operand are of
    each matrix. The second factor of nvf4 is one element, or (G,). Those of parts of K, of mxf8 alone, are of each part
    as of a matrix, one after another: blocks count from where a part begins, at a multiple of 16.

    The result is bf16, or `output_dtype`, or written to `out`. What no group has is 0, or left: `tail`, `quantize` and
    the other arguments are those of `grouped_mm`. `use_fast_accum` changes nothing: sums are always promoted to
    float32.

    Raises OperandError for tensors that do not fit, RequestError for other arguments, CompileError if a kernel cannot
    be built.
    """
    check_tensors(mat_a, mat_b, scale_a, scale_b)
    terms = {
        "offs": offs,
        "cu_seqlens": cu_seqlens,
        "sizes": sizes,
        "bias": bias,
        "activation": activation,
        "pairs": pairs,
        "first": first,
        "tail": tail,
        "expected": expected,
        "out": out,
        "out_dtype": output_dtype,
        "quantize": quantize,
    }
    if (of_a := of_8_bits(scale_recipe_a)) and (of_b := first_name(scale_recipe_b)):
        from cutegen.torch_ops.micro_scales_of_groups import in_atoms

        check_contraction("scaled_grouped_mm", contraction_dim)
        ends, swizzles = offs if cu_seqlens is None else cu_seqlens[1:], swizzle_names(swizzle_a, swizzle_b)
        factors = in_atoms(mat_a, mat_b, (scale_a, scale_b), (of_a, of_b), swizzles, ends)
        return grouped_mm(mat_a, mat_b, **factors, **terms)
    recipe_a, recipe_b = recipes(
        "scaled_grouped_mm", scale_recipe_a, scale_recipe_b, swizzle_a, swizzle_b, contraction_dim=contraction_dim
    )
    if mat_a.ndim > 1 and mat_b.ndim > 1:
        check_k(mat_a.shape, mat_b.shape)
    parts_of_k = mat_a.ndim == mat_b.ndim == 2
    factors_a = _oriented("scale_a", recipe_a, only(scale_a), mat_a, rows=0, parts_of_k=parts_of_k)
    factors_b = _oriented("scale_b", recipe_b, only(scale_b), mat_b, rows=1, parts_of_k=parts_of_k)
    return grouped_mm(mat_a, mat_b, scale_a=factors_a, scale_b=factors_b, **terms)


def _oriented(name: str, recipe: str, scale: Any, operand: Any, *, rows: int, parts_of_k: bool) -> Any:
    """Return factors as `grouped_mm` takes them. `rows` is the dimension along M or N. Raises OperandError."""
    if recipe in OF_BLOCKS:
        if parts_of_k:
            expected = '"TensorWise" or "RowWise" with parts of K, which begin within a block'
            raise OperandError(operand=name, found=recipe, expected=expected)
        return oriented(name, recipe, scale, operand, rows=rows)
    extent, matrices = operand.shape[rows - 2], operand.shape[0] if operand.ndim == 3 else None
    given, elems = tuple(scale.shape), scale.size if isinstance(scale.size, int) else scale.numel()
    if recipe == TENSOR:
        wanted = f"one element{'' if matrices is None and not parts_of_k else ', or (G,)'}"
        if elems == 1:
            return scale.reshape(1)
        if len(given) == 1 and (parts_of_k or given == (matrices,)):
            return _expanded(scale, extent)
    elif parts_of_k:
        wanted = f"(G x {extent},)"
        if len(given) == 1 and extent and elems % extent == 0:
            return scale.reshape(-1, extent)
    else:
        wanted = f"({extent},)" if matrices is None else f"({matrices}, {extent})"
        if given == ((extent,) if matrices is None else (matrices, extent)):
            return scale
    raise OperandError(operand=name, found=f"shape {given}", expected=f"{wanted} for {recipe} of mat_{name[-1]}")


def _expanded(scale: Any, extent: int) -> Any:
    """Return (G, extent) with the factor of each group repeated, without a copy."""
    if hasattr(scale, "expand"):
        return scale[:, None].expand(-1, extent)
    return np.broadcast_to(scale[:, None], (scale.shape[0], extent))
