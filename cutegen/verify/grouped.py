"""Groups in a check: their part of each operand, and the expected result from that of one product at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cutegen.contract.launch import ENDS, OPERANDS, RESULT, RESULT_FACTORS, LaunchContract
from cutegen.contract.problem import Groups, ProblemShape, Product
from cutegen.hardware import WORDS
from cutegen.hardware.factor_atoms import NAN_WORDS
from cutegen.run.call.bits import CARRIERS, bf16_bits, float8_bits
from cutegen.run.call.storage import ENDS_NAMES, CallTensor, call_tensors
from cutegen.spec import STORE
from cutegen.verify.error_bounds import Bounded, Outcome

LEFT = 1.0
"""Elements of a result that no group has, before a call that must leave them."""

OneProduct = Callable[[LaunchContract, Any, Any, Mapping[str, Any]], Outcome]


def given_by(groups: Groups, sizes: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return what a device has for groups of these sizes: ends if they are packed.

    >>> given_by(Groups("m"), (3, 0, 200)).tolist(), given_by(Groups("m", "padded"), (3, 0)).tolist()
    ([3, 3, 203], [3, 0])
    """
    return np.asarray(np.cumsum(sizes) if groups.layout == "packed" else sizes, np.int32)


def part_of(x: Any, tensor: CallTensor, product: Product, group: int) -> Any:
    """Return a group's part of an operand of a call, without copying; what all groups share as it is."""
    if not hasattr(x, "ndim"):
        return x
    if x.ndim > len(tensor.modes):
        x = x[group]
    parts = {
        mode: slice(each.start, each.stop) for mode, each in (("m", product.m), ("n", product.n), ("k", product.k))
    }
    first = parts.get(tensor.modes[0])
    if tensor.may_be_one_value and (x.ndim == 0 or (x.shape[0] == 1 and first != slice(0, 1))):
        return x
    return x[tuple(parts.get(mode, slice(None)) for mode in tensor.modes)]  # pairs of columns belong to no groups


@dataclass(frozen=True, slots=True)
class GroupedCall:
    """The operands of a call with groups, by role: A, B, C if there is one, and the others, with the ends or sizes."""

    contract: LaunchContract
    operands: Mapping[str, Any]
    given: tuple[int, ...]

    @classmethod
    def of(cls, contract: LaunchContract, a: Any, b: Any, extras: Mapping[str, Any]) -> GroupedCall:
        """Return the call of a contract with groups; `extras` are its arguments beside A and B, by name."""
        assert contract.groups is not None
        ends = extras[ENDS_NAMES[contract.groups.layout]]
        return cls(contract, {**extras, "a": a, "b": b}, tuple(int(each) for each in ends))

    @property
    def problem(self) -> ProblemShape:
        """The extents of the operands."""
        a, b = self.operands["a"], self.operands["b"]
        return ProblemShape(a.shape[-2], b.shape[-1], a.shape[-1], groups=len(self.given))

    def products(self) -> Iterator[tuple[int, Product]]:
        """Yield each group with its part of M, N and K."""
        assert self.contract.groups is not None
        return enumerate(self.contract.groups.products(self.given, self.problem))

    def outcome(self, one: OneProduct, left: float) -> Outcome:
        """Return the expected result, of each group by `one`; elements that no group has are `left`."""
        alone, tensors = replace(self.contract, groups=None), {x.name: x for x in self._tensors()}
        like, names = self.operands["a"], (RESULT, STORE, RESULT_FACTORS)
        shapes = {name: self._shape(RESULT_FACTORS if name == RESULT_FACTORS else RESULT) for name in names}
        found = {name: (_full(like, shape, left), _full(like, shape, 0.0)) for name, shape in shapes.items() if shape}
        stores = quantized = False
        for group, product in self.products():
            parts = {
                name: self.part(x, tensors[name], product, group)
                for name, x in self.operands.items()
                if name in tensors
            }
            parts |= {name: x for name, x in self.operands.items() if name not in tensors}
            extras = {name: x for name, x in parts.items() if name not in (*OPERANDS, *ENDS_NAMES.values())}
            outcome = one(alone, parts["a"], parts["b"], extras)
            stores, quantized = outcome.aux is not None, outcome.factors is not None
            is_nan = product.k.start % self.contract.begin_multiple > 0 and len(product.k) > 0
            for name, bounded in zip(names, (outcome.result, outcome.aux, outcome.factors), strict=True):
                if bounded is not None:
                    error = np.inf if is_nan else bounded.error
                    for whole, part in zip(found[name], (bounded.value, error), strict=True):
                        part_of(whole, tensors["out"], product, group)[...] = part
        result, aux = (Bounded(*found[name]) for name in (RESULT, STORE))
        return Outcome(result, aux if stores else None, Bounded(*found[RESULT_FACTORS]) if quantized else None)

    def part(self, x: Any, tensor: CallTensor, product: Product, group: int) -> Any:
        """Return a group's part of an operand, without copying: its atoms of factors, if it has those."""
        groups, block = self.contract.groups, tensor.contract.block
        assert groups is not None
        if tensor.contract.block_elems > 1 and block is not None:
            product = replace(product, k=range(x.shape[tensor.modes.index("k") - 2]))
            if tensor.contract.begins_with(groups):
                rows = dict(zip(tensor.contract.modes, block, strict=True))[groups.of]
                blocks = list(groups.blocks((each for _, each in self.products()), rows))[group]
                if tensor.contract.lists(groups):
                    return self._listed(x, tensor, blocks)
                product = replace(product, **{groups.of: blocks})
        return part_of(x, tensor, product, group)

    def _listed(self, x: Any, tensor: CallTensor, along_k: range) -> Any:
        """Return the atoms of a group of K, those at `along_k` of the K of all, in a list, as those of one matrix."""
        (mode, _), turned = tensor.contract.modes, tensor.modes != tensor.contract.modes
        assert tensor.contract.block is not None
        rows = -(-self.problem.modes[mode] // tensor.contract.block[0])
        atoms = x.swapaxes(0, 1) if turned else x
        first, last = rows * along_k.start, rows * along_k.stop
        words = atoms[first:last].reshape(rows, len(along_k) * atoms.shape[1])
        return words.swapaxes(0, 1) if turned else words

    def _tensors(self) -> Iterator[CallTensor]:
        return (x for role, x in call_tensors(self.contract).items() if role != ENDS)

    def _shape(self, role: str) -> tuple[int, ...]:
        """Return the shape of C, or of its factors; nothing if there are none."""
        if (c := call_tensors(self.contract).get(role)) is None:
            return ()
        extents = tuple(c.extents(self.problem))
        return extents if c.packed else (self.problem.products, *extents)

    def fill_rest(self, name: str, value: float) -> None:
        """Set the elements of an operand that no group has to `value`: rows past an end, or parts of K."""
        tensor, x = next(each for each in self._tensors() if each.name == name), self.operands[name]
        assert self.contract.groups is not None
        if self.contract.groups.of not in tensor.modes:
            return
        rest = np.ones(tuple(x.shape), bool, "C" if tensor.row_major else "F")  # parts are views
        for group, product in self.products():
            self.part(rest, tensor, product, group)[...] = False
        _set(x, _like(x, rest), stored(value, tensor, x))


def _set(x: Any, where: Any, value: Any) -> None:
    """Set elements of an array; 8-bit floats of torch by their bits, since it fills no others on a GPU."""
    if isinstance(x, np.ndarray) or x.element_size() > 1 or not x.is_floating_point():
        x[where] = value
        return
    import torch

    bits = torch.full((1,), float(value), device=x.device).to(x.dtype).view(torch.uint8)
    x.view(torch.uint8)[where] = bits


def stored(value: float, tensor: CallTensor, x: Any) -> Any:
    """Return a number as an element of an operand: its bits where NumPy lacks the type."""
    name, numbers = tensor.dtype.name, np.array([value], np.float32)
    if name in WORDS:
        assert np.isnan(value), "factors of a word are set to NaN alone"
        return NAN_WORDS[name]
    if not isinstance(x, np.ndarray) or name not in CARRIERS:
        return value
    return (bf16_bits(numbers) if name == "bf16" else float8_bits(numbers, name))[0]


def _full(like: Any, shape: tuple[int, ...], value: float) -> Any:
    """Return an array of float64 of `like`'s framework and device."""
    if isinstance(like, np.ndarray):
        return np.full(shape, value)
    return like.new_full(shape, value, dtype=_float64(like))


def _float64(like: Any) -> Any:
    import torch

    return torch.float64


def _like(x: Any, mask: np.ndarray[Any, Any]) -> Any:
    if isinstance(x, np.ndarray):
        return mask
    import torch

    return torch.from_numpy(mask).to(x.device)
