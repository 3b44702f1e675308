"""The self-check of a generated file: random operands, the chain in PyTorch, the tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from cutegen.contract.launch import leading_stride
from cutegen.hardware import DType
from cutegen.plan import GemmPlan
from cutegen.plan.values.epilogue import EpilogueTensor
from cutegen.render import epilogue
from cutegen.spec import STORE

CHECKED_MNK = (1008, 1040, 528)
"""The problem: no extent is a multiple of a CTA tile's, so that there are partial tiles on every side."""
LEAST_ATOM_K = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheckHoles:
    """Holes of the self-check for the epilogue: operands, the call's tensors, the chain in PyTorch."""

    operands: tuple[str, ...]
    tensors: str
    strided: str
    scalars: str
    steps: tuple[str, ...]
    results: str
    integers: bool


def self_check(plan: GemmPlan) -> SelfCheckHoles:
    fusion = plan.epilogue.fusion
    operands = [f"{name} = {value}" for name, value in _EXAMPLE_SCALARS.items() if name in fusion.scalars]
    operands += [f"{x.name} = {_random(x)}" for x in fusion.tensors]
    stores = STORE in {x.name for x in fusion.tensors}
    return SelfCheckHoles(
        operands=tuple(operands),
        tensors=", ".join(x.name for x in plan.launch.tensors),
        strided=", ".join(x.name for x in plan.launch.tensors if leading_stride(x)),
        scalars="".join(f"{name}, " for name in fusion.scalars),
        steps=epilogue.torch_lines(fusion),
        results='("c", c, x), ("aux", aux, expected_aux)' if stores else '("c", c, x),',
        integers=any(x.is_integer for x in epilogue.stored_types(plan)),
    )


_EXAMPLE_SCALARS = {"alpha": 1.25, "beta": -0.75}


def _random(tensor: EpilogueTensor) -> str:
    if len(tensor.modes) == 1:
        return _random_elements(f"({tensor.major},)" if tensor.dtype.is_integer else tensor.major, tensor.dtype)
    return random_matrix(tensor.modes, tensor.major, tensor.dtype)


def random_matrix(modes: tuple[str, ...], major: str, element: DType) -> str:
    """Return a random matrix whose contiguous mode is `major`, in PyTorch."""
    if major != modes[-1]:
        return f"{random_matrix(modes[::-1], major, element)}.T"
    return _random_elements(f"({', '.join(modes)})", element)


def _random_elements(shape: str, element: DType) -> str:
    """Return normal numbers, or integers small enough that sums of a few hundred products fit in the types of C."""
    if element.is_integer:
        least = 0 if element.is_unsigned else -8
        return f'torch.randint({least}, 9, {shape}, dtype=torch.{element.torch_name}, device="cuda")'
    return f'torch.randn({shape}, device="cuda").to(torch.{element.torch_name})'


def tolerance(plan: GemmPlan) -> float:
    """Return the relative error that the self-check allows, by norms.

    C is rounded, and so are sums: their errors are a random walk, with one step per atom of the least K. tf32 drops 13
    bits of an operand. The tensor cores of sm_89 keep 13 bits of sums of 8-bit floats in each instruction. Integers are
    exact.
    """
    checked_k, atom_k = CHECKED_MNK[2], plan.atom.shape_mnk[2]
    steps = isqrt(checked_k // LEAST_ATOM_K)
    error = 2 * max(map(_rounding, epilogue.stored_types(plan))) + steps * _rounding(plan.atom.c_dtype)
    if plan.atom.a_dtype.name == "tf32":
        error += 2.0**-9
    if plan.atom.a_dtype.is_float8:
        error += -(-checked_k // atom_k) * 2.0**-13
    return float(f"{error:.1e}")


def _rounding(element: DType) -> float:
    """Return the unit roundoff; 8-bit results of a chain in f32 may be off by one if the value is near a tie."""
    if element.significand_bits is not None:
        return 2.0**-element.significand_bits
    return 2.0**-8 if element.bits == 8 else 2.0**-24
