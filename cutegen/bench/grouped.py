"""Groups in a benchmark: their sizes, and torch's two ways to multiply them, one call or a product for each group."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cutegen.bench.contenders import TORCH_GROUPED, TORCH_LOOP, Operands, Prepare, torch_product
from cutegen.bench.measure import Call
from cutegen.contract.launch import OPERANDS, RESULT, LaunchContract
from cutegen.contract.problem import Groups, ProblemShape
from cutegen.run.call.storage import ENDS_NAMES, call_tensors
from cutegen.verify.error_bounds import Bounded, Outcome
from cutegen.verify.grouped import LEFT, GroupedCall, given_by, part_of
from cutegen.verify.reference import float64_reference


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """The sizes of packed groups that have the whole extent, and how they are called, such as "zipf"."""

    groups: Groups
    values: tuple[int, ...]
    name: str

    def products(self, problem: ProblemShape) -> tuple[ProblemShape, ...]:
        """Return the products that have elements.

        >>> sizes = GroupSizes(Groups("m"), (3, 0, 5), "3,0,5")
        >>> [str(each) for each in sizes.products(ProblemShape(8, 16, 4, groups=3))]
        ['3x16x4', '5x16x4']
        """
        parts = self.groups.products(given_by(self.groups, self.values).tolist(), problem)
        shapes = (ProblemShape(len(each.m), len(each.n), len(each.k)) for each in parts)
        return tuple(each for each in shapes if not each.empty)

    def argument(self, device: Any) -> dict[str, Any]:
        """Return the ends, a torch tensor on the device, by the name of a call's argument."""
        import torch

        return {ENDS_NAMES[self.groups.layout]: torch.from_numpy(given_by(self.groups, self.values)).to(device)}


def others_of_groups(contract: LaunchContract) -> Iterator[tuple[str, Prepare]]:
    """Return torch's ways to multiply groups; none for factors, pairs of columns or a quantized result."""
    import torch

    if contract.factors or contract.pairs is not None or contract.quantized is not None:
        return
    if hasattr(torch.nn.functional, "grouped_mm"):
        yield TORCH_GROUPED, partial(_grouped_mm, contract)
    yield TORCH_LOOP, partial(_loop, contract)


def product_of_groups(contract: LaunchContract, x: Operands, accumulator: str) -> Bounded:
    """Return A B of each group in float64, in the places that C has for them."""
    return _call(contract, x).outcome(partial(_without_epilogue, accumulator), LEFT).result


def _without_epilogue(accumulator: str, alone: LaunchContract, a: Any, b: Any, _: object) -> Outcome:
    return Outcome(float64_reference(a, b, alone).bounded(accumulator), None)


def _call(contract: LaunchContract, x: Operands) -> GroupedCall:
    return GroupedCall.of(contract, x.a, x.b, {**x.extras, "out": x.out})


def _grouped_mm(contract: LaunchContract, x: Operands) -> Call:
    """Its results are new: `x.out` becomes each of them, without a copy that would be timed."""
    import torch

    assert contract.groups is not None
    ends, dtype = x.extras[ENDS_NAMES[contract.groups.layout]], x.out.dtype
    return lambda: x.out.set_(torch.nn.functional.grouped_mm(x.a, x.b, offs=ends, out_dtype=dtype))


def _loop(contract: LaunchContract, x: Operands) -> Call:
    """The host knows the sizes, which a program would wait for."""
    tensors, products = call_tensors(contract), []
    for group, product in _call(contract, x).products():
        if product.m and product.n:
            a, b, out = (
                part_of(each, tensors[role], product, group)
                for role, each in zip((*OPERANDS, RESULT), (x.a, x.b, x.out), strict=True)
            )
            products.append(torch_product(contract.tensor("a").dtype, replace(x, a=a, b=b, out=out)))

    def call() -> None:
        for each in products:
            each()

    return call
