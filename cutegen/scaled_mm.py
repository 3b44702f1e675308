"""`cutegen.scaled_mm`: a product of 8-bit floats with their factors, with torch's argument names and orientations.

y = cutegen.scaled_mm(x8, w8.T, sa, "BlockWise1x128", sb, "BlockWise128x128", output_dtype=torch.bfloat16)
"""

from collections.abc import Sequence
from typing import Any

from cutegen.dispatch.block_scales import BLOCK, SCALES, way_out
from cutegen.dispatch.grouped import check_k
from cutegen.errors import OperandError, RequestError
from cutegen.matmul import matmul
from cutegen.support.words import nearest

TENSOR, ROW, ROWS_OF_K, BLOCKS = RECIPES = ("TensorWise", "RowWise", "BlockWise1x128", "BlockWise128x128")
"""Names of torch.nn.functional.ScalingType that kernels have."""
OF_BLOCKS = (ROWS_OF_K, BLOCKS)
OF_8_BITS = ("BlockWise1x32", "BlockWise1x16")
"""Recipes with factors of 8 bits, of which calls on the CPU compute the definition."""
_NO_SWIZZLE = "NO_SWIZZLE"


def scaled_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    output_dtype: Any = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    activation: Any = None,
    pairs: str | int | None = None,
    first: str | None = None,
    out: Any = None,
    quantize: str | None = None,
) -> Any:
    """`activation((scale_a * mat_a) @ (scale_b * mat_b) + bias)`, as torch.nn.functional.scaled_mm.

    `mat_a` is (M, K) and `mat_b` (K, N), of e4m3 or e5m2, both contiguous along K: `mat_b` is usually the transpose of
    (N, K) weights. A recipe is one of torch.nn.functional.ScalingType, or its name. Factors are f32, oriented as there:

    | recipe             | scale_a                                | scale_b                                |
    |--------------------|----------------------------------------|----------------------------------------|
    | "TensorWise"       | one element                            | one element                            |
    | "RowWise"          | (M, 1)                                 | (1, N)                                 |
    | "BlockWise1x128"   | (M, K/128)                             | (N, K/128)                             |
    | "BlockWise128x128" | (K/128, M/128), K first                | (K/128, N/128), K first                |

    "BlockWise1x32" (mxf8, mxf4) and "BlockWise1x16" (nvf4, alone or in a list with "TensorWise") have factors of 8 bits
    for each row, the same for both operands: e8m0 and e4m3, with `swizzle_a` and `swizzle_b` "SWIZZLE_32_4_4" or none,
    as `cutegen.quantize` makes them. Kernels of sm_100 and sm_103 multiply by them; on the CPU torch does, in f32.

    Extents are rounded up. K first may be padded to a multiple of 4, as torch demands. Any strides are accepted. Those
    with either mode contiguous need no copy if they are multiples of 16 bytes, on sm_90 any. All pairs of the two block
    recipes exist, also 128 x 128 for both, and M, N and K may be anything. Factors of a shard are those from its first
    block on, and it begins with a block.

    The result is bf16, or `output_dtype`, or written to `out`. `activation`, `pairs`, `first` and `quantize` are
    those of `cutegen.matmul`. Sums of 8-bit floats are always promoted to float32, so `use_fast_accum` changes nothing.

    Raises OperandError for tensors that do not fit, RequestError for other arguments, CompileError if a kernel cannot
    be built.
    """
    check_tensors(mat_a, mat_b, scale_a, scale_b)
    terms: dict[str, Any] = {
        "bias": bias,
        "activation": activation,
        "pairs": pairs,
        "first": first,
        "out": out,
        "out_dtype": output_dtype,
        "quantize": quantize,
    }
    if (of_a := of_8_bits(scale_recipe_a)) and (of_b := first_name(scale_recipe_b)):
        from cutegen.torch_ops.quantize import check_tensor

        for name, each in (("mat_a", mat_a), ("mat_b", mat_b)):
            check_tensor(name, each, (2,), "a matrix of torch, (M, K) or (K, N)")
        check_contraction("scaled_mm", contraction_dim)
        swizzles = swizzle_names(swizzle_a, swizzle_b)
        factors = in_atoms("scaled_mm", mat_a, mat_b, (scale_a, scale_b), (of_a, of_b), swizzles)
        return matmul(mat_a, mat_b, **factors, **terms)
    recipe_a, recipe_b = recipes(
        "scaled_mm", scale_recipe_a, scale_recipe_b, swizzle_a, swizzle_b, contraction_dim=contraction_dim
    )
    if mat_a.ndim == mat_b.ndim == 2:
        check_k(mat_a.shape, mat_b.shape)
    factors_a = _oriented("scale_a", recipe_a, only(scale_a), mat_a, rows=0)
    factors_b = _oriented("scale_b", recipe_b, only(scale_b), mat_b, rows=1)
    return matmul(mat_a, mat_b, scale_a=factors_a, scale_b=factors_b, **terms)


def check_tensors(mat_a: Any, mat_b: Any, *scales: Any) -> None:
    """Raise OperandError for what is no tensor or array: a matrix, or factors, which may be in a list."""
    given = [("mat_a", mat_a), ("mat_b", mat_b)]
    for name, scale in zip(SCALES, scales, strict=True):
        given += [(name, each) for each in (scale if isinstance(scale, list | tuple) else (scale,))]
    for name, each in given:
        if not hasattr(each, "shape"):
            found = f"a {type(each).__qualname__}"
            raise OperandError(operand=name, found=found, expected="a torch tensor or a NumPy array")


def in_atoms(
    function: str, mat_a: Any, mat_b: Any, scales: tuple[Any, Any], of: tuple[str, str], swizzles: tuple[str, str]
) -> dict[str, Any]:
    """Return factors of 8 bits as the keywords of `matmul`: those of blocks in atoms, with those of all values.

    Raises RequestError for recipes of two kinds and unknown layouts, OperandError for factors of another type.
    """
    from cutegen.torch_ops.quantize import as_atoms, check_recipes, check_swizzles

    check_recipes(function, of)
    check_swizzles(function, swizzles)
    found = {}
    for name, values, given, recipe, swizzle in zip(SCALES, (mat_a, mat_b.mT), scales, of, swizzles, strict=True):
        of_blocks, *others = given if isinstance(given, list | tuple) else [given]
        of_blocks = as_atoms(name, values, of_blocks, recipe, swizzle)
        found[name] = (of_blocks, *others) if others else of_blocks
    return found


def recipes(
    function: str, of_a: Any, of_b: Any, swizzle_a: Any, swizzle_b: Any, *, contraction_dim: Sequence[int]
) -> tuple[str, str]:
    """Return the names of the recipes of A and of B. Raises RequestError for what no kernel has."""
    if of_8_bits(of_a) or of_8_bits(of_b):
        found = " with ".join(first_name(each) or repr(each) for each in (of_b, of_a))
        expected = "one for both operands: an instruction scales by both"
        raise RequestError(f"{function}: scale_recipe_b: found {found}; expected {expected}")
    recipe_a, recipe_b = _recipe(function, "scale_recipe_a", of_a), _recipe(function, "scale_recipe_b", of_b)
    if (recipe_a in OF_BLOCKS) != (recipe_b in OF_BLOCKS):
        raise RequestError(
            f"{function}: scale_recipe_b: found {recipe_b} with {recipe_a}; expected blocks for both operands, or for "
            "neither"
        )
    for name, swizzle in (("swizzle_a", swizzle_a), ("swizzle_b", swizzle_b)):
        if (found := only(swizzle)) is not None and getattr(found, "name", found) != _NO_SWIZZLE:
            raise RequestError(f"{function}: {name}: found {found!r}; expected none: factors are read as they are")
    check_contraction(function, contraction_dim)
    return recipe_a, recipe_b


def check_contraction(function: str, contraction_dim: Sequence[int]) -> None:
    """Raise RequestError for other modes than K to sum over."""
    if tuple(contraction_dim):
        raise RequestError(f"{function}: contraction_dim: found {contraction_dim!r}; expected (): K is summed")


def first_name(given: Any) -> str:
    """Return the name of a recipe or swizzle, or of the first of a list; "" for none."""
    first = given[0] if isinstance(given, list | tuple) and given else given
    return "" if first is None else str(getattr(first, "name", first))


def swizzle_names(of_a: Any, of_b: Any) -> tuple[str, str]:
    """Return the names of the layouts of both operands' factors, those of blocks if there are several."""
    return first_name(of_a) or _NO_SWIZZLE, first_name(of_b) or _NO_SWIZZLE


def of_8_bits(recipe: Any) -> str:
    """Return the name of a recipe with factors of 8 bits, "" for another."""
    name = first_name(recipe)
    return name if name in OF_8_BITS else ""


def only(given: Any) -> Any:
    """Return the element of a list of one, as torch accepts."""
    return given[0] if isinstance(given, list | tuple) and len(given) == 1 else given


def _recipe(function: str, name: str, given: Any) -> str:
    """Return the name of a recipe. Raises RequestError for one that no kernel has."""
    found = only(given)
    said = getattr(found, "name", found)
    if said in RECIPES:
        return str(said)
    close = nearest(said, (*RECIPES, *OF_8_BITS)) if isinstance(said, str) else ""
    raise RequestError(
        f"{function}: {name}: found {said!r}; expected one of {', '.join((*RECIPES, *OF_8_BITS))}"
        + (f"; did you mean {close}?" if close else "")
    )


def _oriented(name: str, recipe: str, scale: Any, operand: Any, *, rows: int) -> Any:
    """Return factors in the order of their operand. `rows` is its dimension along M or N. Raises OperandError."""
    if recipe not in OF_BLOCKS:
        return _checked(name, recipe, scale, operand, rows)
    if operand.ndim != 2:
        raise OperandError(
            operand=f"mat_{name[-1]}",
            found=f"shape {tuple(operand.shape)}",
            expected="a matrix, (M, K) or (K, N)",
            fix="cutegen.matmul takes batches" if operand.ndim > 2 else "",
        )
    return oriented(name, recipe, scale, operand, rows=rows)


def oriented(name: str, recipe: str, scale: Any, operand: Any, *, rows: int) -> Any:
    """Return factors of blocks in the order of their operand, a matrix or several. Raises OperandError."""
    batch, (extent, k) = tuple(operand.shape[:-2]), (operand.shape[rows - 2], operand.shape[-1 - rows])
    along_k = -(-k // BLOCK)
    if recipe == ROWS_OF_K:
        wanted: tuple[tuple[int, ...], ...] = ((*batch, extent, along_k),)
        in_order = rows == 0
    else:
        wanted = tuple((*batch, x, -(-extent // BLOCK)) for x in dict.fromkeys((along_k, -(-along_k // 4) * 4)))
        in_order = rows == 1
    if tuple(scale.shape) not in wanted:
        raise OperandError(
            operand=name,
            found=f"shape {tuple(scale.shape)}",
            expected=f"{' or '.join(map(str, wanted))} for {recipe} of mat_{name[-1]} {tuple(operand.shape)}",
            fix=way_out(name, tuple(scale.shape), wanted, along_k=-1 if recipe == ROWS_OF_K else -2),
        )
    if recipe == BLOCKS:
        scale = scale[..., :along_k, :]
    return scale if in_order else scale.swapaxes(-1, -2)


def _checked(name: str, recipe: str, scale: Any, operand: Any, rows: int) -> Any:
    """Return one factor for all, or one per row of A or column of B. Raises OperandError for other shapes."""
    extent = operand.shape[rows] if operand.ndim == 2 else None
    wanted = ((), (1,), (1, 1)) if recipe == TENSOR else (((extent, 1),) if rows == 0 else ((1, extent),))
    if tuple(scale.shape) not in wanted:
        raise OperandError(
            operand=name,
            found=f"shape {tuple(scale.shape)}",
            expected=f"{' or '.join(map(str, wanted))} for {recipe}",
            fix=f"`{name}.T`" if tuple(scale.shape)[::-1] in wanted else "",
        )
    return scale.reshape(-1) if recipe == ROW else scale
