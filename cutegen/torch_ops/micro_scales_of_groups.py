"""Operands of groups with factors of 8 bits, dequantized: packed rows, or a matrix for each group.

```text
packed rows (R, K)      the factors of a group as `blocked` has them, its rows filled up to 128, then those of the next
matrices (G, X, K)      the factors of each matrix as `blocked` has them
```
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from cutegen.errors import OperandError, RequestError
from cutegen.hardware.factor_atoms import ATOM_ROWS, PER_WORD
from cutegen.support.words import round_up
from cutegen.torch_ops.micro_scales import RECIPES, SWIZZLED, check_recipes, check_tensor, elements, unblocked
from cutegen.torch_ops.packed_rows import PackedRows

_OF_GROUPS = 3
"""Dimensions of an operand with a matrix for each group."""


def grouped_operands(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_b: Any,
    recipes: tuple[str, str],
    swizzles: tuple[str, str],
    ends: Any,
) -> tuple[Tensor, Tensor]:
    """Return both operands of torch's `scaled_grouped_mm` in f32; `ends` are those of packed groups.

    Raises RequestError for recipes of two kinds, OperandError for tensors that are not on the CPU, for parts of K, and
    for other factors than the recipe's.
    """
    check_recipes("scaled_grouped_mm", recipes)
    for name, each in (("mat_a", mat_a), ("mat_b", mat_b)):
        expected = "a matrix of torch, or one for each group"
        check_tensor(name, each, (2, _OF_GROUPS), expected)
        if each.device.type != "cpu":
            raise OperandError(operand=name, found=f"a tensor on {each.device} with {recipes[0]}", expected="the CPU")
    if mat_a.dim() == mat_b.dim() == 2:
        expected = "groups of rows or of columns: parts of K would begin within a block"
        raise OperandError(operand="mat_a", found=f"parts of K with {recipes[0]}", expected=expected)
    if mat_a.dim() + mat_b.dim() < 2 * _OF_GROUPS and not isinstance(ends, Tensor):
        found = f"{ends!r} with packed groups"
        raise RequestError(f"scaled_grouped_mm: offs: found {found}; expected the ends of the groups, (G,) of int32")
    a = _dequantized("a", mat_a, scale_a, recipes[0], swizzles[0], ends)
    return a, _dequantized("b", mat_b.mT, scale_b, recipes[1], swizzles[1], ends).mT


def _dequantized(name: str, values: Tensor, factors: Any, recipe: str, swizzle: str, ends: Any) -> Tensor:
    """Return an operand (R, K) of packed groups, or (G, X, K), in f32. Raises OperandError."""
    of_blocks, *of_tensor = factors if isinstance(factors, list | tuple) else [factors]
    wide, block_k = elements(values), RECIPES[recipe].block_k
    *groups, rows, k = wide.shape
    at = None if groups else PackedRows.of(ends, rows)
    ordered = _in_order(name, of_blocks, (*groups, rows, -(-k // block_k)), recipe, swizzle, at)
    scaled: Tensor = wide * ordered.float().repeat_interleave(block_k, -1)[..., :k]
    return scaled * _second(name, of_tensor, groups[0] if at is None else at.groups, at) if of_tensor else scaled


def _second(name: str, given: Sequence[Tensor], groups: int, at: PackedRows | None) -> Tensor:
    """Return nvf4's second factors as they multiply an operand, of all or of each group. Raises OperandError."""
    if len(given) != 1 or given[0].numel() not in (1, groups):
        found = f"second factors of shape {', '.join(str(tuple(each.shape)) for each in given)}"
        raise OperandError(operand=f"scale_{name}", found=found, expected=f"f32 of shape (1,) or ({groups},)")
    of_groups = given[0].float().reshape(-1)
    if at is None:
        return of_groups[:, None, None]
    return of_groups if len(of_groups) == 1 else at.of_rows(of_groups)


def _in_order(
    name: str, factors: Tensor, shape: tuple[int, ...], recipe: str, swizzle: str, at: PackedRows | None
) -> Tensor:
    """Return the factors of an operand's rows in the order of rows and K, of `shape`. Raises OperandError."""
    *groups, rows, along_k = shape
    kind, wanted = RECIPES[recipe].factors, f"{shape}"
    right = factors.dtype == kind
    if swizzle != SWIZZLED:
        if right and tuple(factors.shape) == shape:
            return factors
    else:
        width = round_up(along_k, PER_WORD)
        room = factors.numel() // width if width else 0
        needed = prod(groups) * round_up(rows, ATOM_ROWS) if at is None else _needed(at)
        fits = room == needed if at is None else room >= needed and room % ATOM_ROWS == 0
        if right and fits and room * width == factors.numel():
            ordered = unblocked(factors.reshape(-1), room, along_k)
            return ordered.unflatten(0, (*groups, -1))[:, :rows] if at is None else at.taken(ordered)
        wanted = f"{'' if at is None else 'at least '}{needed} x {width}, {ATOM_ROWS} rows in an atom,"
    raise OperandError(
        operand=f"scale_{name}",
        found=f"{factors.dtype} of shape {tuple(factors.shape)}",
        expected=f"{kind}, {wanted} in {swizzle} for {recipe} of {' x '.join(map(str, shape[:-1]))} rows",
        fix="cutegen.quantize makes such factors, with offs= those of packed groups",
    )


def _needed(at: PackedRows) -> int:
    """Return the rows of the atoms that groups have."""
    places = at.place[at.inside]
    return round_up(int(places.amax()) + 1, ATOM_ROWS) if len(places) else 0
