"""Factors of 8 bits of groups: of packed rows or K, or of a matrix for each group; and what such operands stand for.

```text
packed rows (R, K)      the factors of a group as `blocked` has them, its rows filled up to 128, then those of the next
parts of K (X, K)       the factors of a part as `blocked` has them, its blocks filled up to 4, then those of the next
matrices (G, X, K)      the factors of each matrix as `blocked` has them
```
"""

from typing import Any

import torch
from torch import Tensor

from cutegen.contract.tensor_map import BOX_MULTIPLE_BYTES
from cutegen.dispatch.block_scales import SCALES, SECOND
from cutegen.errors import OperandError, RequestError
from cutegen.hardware.factor_atoms import ATOM_BYTES, ATOM_COLUMNS, ATOM_ROWS, COLUMN_ROWS, PER_WORD
from cutegen.support.words import round_up
from cutegen.torch_ops import quantize
from cutegen.torch_ops.packed_rows import PackedRows

_OF_GROUPS = 3
"""Dimensions of an operand with a matrix for each group."""


def in_atoms(
    mat_a: Any, mat_b: Any, scales: tuple[Any, Any], recipes: tuple[str, str], swizzles: tuple[str, str], ends: Any
) -> dict[str, Any]:
    """Return the factors of torch's `scaled_grouped_mm` as the keywords of `grouped_mm`: those of blocks in atoms.

    `ends` are those of packed groups. Raises RequestError for recipes of two kinds and unknown layouts, OperandError
    for operands that have no groups, for factors of another type, and for parts of K whose factors are in no atoms.
    """
    quantize.check_recipes("scaled_grouped_mm", recipes)
    quantize.check_swizzles("scaled_grouped_mm", swizzles)
    for name, each in (("mat_a", mat_a), ("mat_b", mat_b)):
        quantize.check_tensor(name, each, (2, _OF_GROUPS), "a matrix of torch, or one for each group")
    parts_of_k = mat_a.dim() == mat_b.dim() == 2
    if parts_of_k:
        _check_parts(mat_a, mat_b, swizzles)
    if mat_a.dim() + mat_b.dim() < 2 * _OF_GROUPS and not isinstance(ends, Tensor):
        found = f"{ends!r} with packed groups"
        raise RequestError(f"scaled_grouped_mm: offs: found {found}; expected the ends of the groups, (G,) of int32")
    factors: dict[str, Any] = {}
    for name, values, given, recipe, swizzle in zip(SCALES, (mat_a, mat_b.mT), scales, recipes, swizzles, strict=True):
        of_blocks, *others = given if isinstance(given, list | tuple) else [given]
        at = None if parts_of_k or values.dim() == _OF_GROUPS else PackedRows.of(ends, values.shape[0])
        of_blocks = quantize.as_atoms(name, values, of_blocks, recipe, swizzle, at)
        factors[name] = (of_blocks, *others) if others else of_blocks
    return factors


def _check_parts(mat_a: Tensor, mat_b: Tensor, swizzles: tuple[str, str]) -> None:
    """Raise for parts of K of 4-bit floats, OperandError, and for factors that are in no atoms, RequestError."""
    for name, each in (("mat_a", mat_a), ("mat_b", mat_b)):
        if each.dtype == torch.float4_e2m1fn_x2:
            expected = "8-bit floats with parts of K: the ends of pairs of 4-bit floats might count either"
            raise OperandError(operand=name, found=f"{each.dtype}", expected=expected)
    for name, swizzle in zip(("swizzle_a", "swizzle_b"), swizzles, strict=True):
        if swizzle != quantize.SWIZZLED:
            expected = f"{quantize.SWIZZLED} with parts of K, each of which has blocks of its own"
            fix = "torch.cat([cutegen.quantize(...)[1] for each part])"
            raise RequestError(f"scaled_grouped_mm: {name}: found {swizzle!r}; expected {expected}; {fix}")


def vectors(seconds: dict[str, Tensor], a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Return nvf4's second factors, of one element or (G,), as kernels multiply by them: one, or vectors of groups.

    Raises OperandError for others.
    """
    groups = a.shape[0] if a.dim() == _OF_GROUPS else b.shape[0]
    for name, second in SECOND.items():
        if (given := seconds.get(second)) is not None and given.numel() not in (1, groups):
            found = f"second factors of shape {tuple(given.shape)}"
            raise OperandError(operand=name, found=found, expected=f"f32 of shape (1,) or ({groups},)")
    given = [x.reshape(-1) for x in seconds.values()]
    if all(len(x) == 1 for x in given):
        return dict(zip(seconds, given, strict=True))
    of_groups = given[0] if len(given) == 1 else given[0] * given[1]
    # One of the factors may be of packed rows, which have no vector for each group: their product is of the others.
    name, extent = ("scale_n", b.shape[-1]) if b.dim() == _OF_GROUPS else ("scale_m", a.shape[-2])
    return {name: of_groups[:, None].expand(-1, extent)}


def scaled_by_groups(
    name: str, values: Tensor, factors: Tensor, ends: Tensor | None, *, parts_of_k: bool = False
) -> Tensor:
    """Return an operand (R, K) of packed groups with these `ends`, or (G, X, K), in f32, each value times its factor.

    Groups are of rows, or `parts_of_k`.

    Raises OperandError for factors of fewer atoms than the groups have; the host waits to know.
    """
    if values.dim() == _OF_GROUPS:
        return quantize.scaled(values, factors)
    assert ends is not None
    if parts_of_k:
        return _scaled_parts(name, values, factors, ends)
    wide, block_k = quantize.elements(values), quantize.TYPES[factors.dtype]
    rows, k = wide.shape
    at, along_k = PackedRows.of(ends, rows), -(-k // block_k)
    width = round_up(along_k, PER_WORD)
    room, places = factors.numel() // width if width else 0, at.place[at.inside]
    needed = round_up(int(places.amax()) + 1, ATOM_ROWS) if len(places) else 0
    if room < needed and width:
        raise OperandError(
            operand=name,
            found=f"{factors.dtype} of shape {tuple(factors.shape)}",
            expected=f"at least {needed} x {width}, {ATOM_ROWS} rows in an atom, for groups of {rows} rows",
            fix="cutegen.quantize makes such factors, with offs= those of packed groups",
        )
    ordered = at.taken(quantize.unblocked(factors.reshape(-1), room, along_k))
    return wide * ordered.float().repeat_interleave(block_k, -1)[..., :k]


def _scaled_parts(name: str, values: Tensor, factors: Tensor, ends: Tensor) -> Tensor:
    """Return (X, K) with parts of K in f32, each value times the factor of its block of its part.

    Raises OperandError for fewer factors than the parts have, and for a part that begins where no kernel's box does.
    """
    wide, block_k = quantize.elements(values), quantize.TYPES[factors.dtype]
    rows, k = wide.shape
    of_atom, stops = block_k * PER_WORD, PackedRows.stops(ends, k)
    begins = torch.cat((stops.new_zeros(1), stops))[:-1]
    within = BOX_MULTIPLE_BYTES // values.element_size()
    if bool(((begins % within > 0) & (stops > begins)).any()):
        first = int(begins[(begins % within > 0) & (stops > begins)][0])
        expected = f"a multiple of {within}, {BOX_MULTIPLE_BYTES} bytes: blocks count from where a part begins"
        raise OperandError(operand="offs", found=f"a part of K that begins at {first}", expected=expected)
    atoms = (stops - begins + of_atom - 1) // of_atom
    blocks, firsts = -(-rows // ATOM_ROWS), atoms.cumsum(0) - atoms
    if factors.numel() < (needed := int(atoms.sum()) * blocks * ATOM_ROWS * PER_WORD):
        raise OperandError(
            operand=name,
            found=f"{factors.dtype} of shape {tuple(factors.shape)}",
            expected=f"at least {needed} factors, in atoms of {ATOM_ROWS} rows by {PER_WORD}, for the parts of K",
            fix="torch.cat of those that cutegen.quantize makes of each part",
        )
    column = torch.arange(k, device=wide.device)
    part = torch.searchsorted(stops, column, right=True).clamp(max=max(len(stops) - 1, 0))
    if not len(stops) or not needed:
        return wide
    block = (column - begins[part]).clamp(min=0) // block_k
    row = torch.arange(blocks, device=wide.device)[:, None]
    at = (blocks * firsts[part] + row * atoms[part] + block // PER_WORD).clamp(max=factors.numel() // ATOM_BYTES - 1)
    codes = factors.contiguous().view(torch.uint8).reshape(-1)[: factors.numel() // ATOM_BYTES * ATOM_BYTES]
    lanes = codes.reshape(-1, COLUMN_ROWS, ATOM_COLUMNS, PER_WORD)[at, :, :, (block % PER_WORD).expand_as(at)]
    # [block of rows, k, lane, column] -> [block of rows, column, lane, k]
    ordered = lanes.permute(0, 3, 2, 1).reshape(blocks * ATOM_ROWS, k)[:rows].contiguous().view(factors.dtype)
    return wide * ordered.float()
