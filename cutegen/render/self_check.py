"""The self-check of a generated file: random operands, the chain in PyTorch, the tolerance."""

from dataclasses import dataclass
from math import isqrt

from cutegen.contract import TensorContract
from cutegen.contract.launch import RESULT, leading_stride
from cutegen.hardware import DType, dtype
from cutegen.hardware.factor_atoms import COLUMN_ROWS, PER_WORD
from cutegen.plan import GemmPlan
from cutegen.plan.values.epilogue import EpilogueTensor
from cutegen.render import epilogue
from cutegen.spec import STORE, Binary, Call, Expression, Number, names_of, parts_of

CHECKED_MNK = (1008, 1040, 528)
"""The problem: odd multiples of 16, and so of no CTA tile's extents: there are partial tiles on every side."""
LEAST_ATOM_K = 8
LEAST_AGREEMENT = 0.05
"""Relative difference up to which elements agree if the chain amplifies errors, or twice C's epsilon if that is more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheckHoles:
    """Holes of the self-check for the epilogue: operands, the call's tensors, the chain in PyTorch.

    `agreement` is not None if the chain amplifies errors: elements are then compared one by one.
    """

    operands: tuple[str, ...]
    product: str
    tensors: str
    strided: str
    scalars: str
    steps: tuple[str, ...]
    results: str
    poison: str
    agreement: float | None


def self_check(plan: GemmPlan) -> SelfCheckHoles:
    fusion = plan.epilogue.fusion
    operands = [f"{name} = {value}" for name, value in _EXAMPLE_SCALARS.items() if name in fusion.scalars]
    operands += [line for x in plan.launch.factors for line in _factors(x)]
    operands += [
        line
        for x, operand in zip(plan.launch.factors, plan.launch.operands, strict=False)
        for line in _scaled(x, operand.dtype)
    ]
    operands += [f"{x.name} = {_random(x)}" for x in fusion.tensors]
    stores = STORE in {x.name for x in fusion.tensors}
    results, steps = (
        '("c", c, x), ("aux", aux, expected_aux)' if stores else '("c", c, x),',
        epilogue.torch_lines(fusion),
    )
    if fusion.quantization is not None:
        factors = fusion.quantization.factors
        operands += _factors(plan.launch.tensor(factors.name))
        results = f'("c", c.double() * {_spread(plan.launch.tensor(factors.name))}, x),'
    return SelfCheckHoles(
        operands=tuple(operands),
        product="scaled_a @ scaled_b.T" if plan.launch.factors else "a.double() @ b.double().T",
        tensors=", ".join(x.name for x in plan.launch.tensors),
        strided=", ".join(x.name for x in plan.launch.tensors if leading_stride(x)),
        scalars="".join(f"{name}, " for name in fusion.scalars),
        steps=steps,
        results=results,
        poison=_poison(plan),
        agreement=agreement(plan),
    )


def _factors(x: TensorContract) -> tuple[str, ...]:
    """Return lines that make positive factors, in PyTorch, with a leading stride of whole vectors."""
    if x.block_elems > 1:
        return _words(x)
    assert x.block is not None
    along = x.modes.index(x.major)
    extents = [mode if of == 1 else f"-(-{mode} // {of})" for mode, of in zip(x.modes, x.block, strict=True)]
    rows, columns = extents[1 - along], extents[along]
    aligned = x.align_bytes // dtype(x.dtype).bytes
    room = f"-(-{x.major} // {x.block[along] * aligned}) * {aligned}"
    first = f":{columns}" if columns.isidentifier() else f": {columns}"
    made = f'{x.name} = torch.rand({rows}, {room}, device="cuda")[:, {first}]'
    return (made if x.major == x.modes[1] else f"{made}.T",)


def _scaled(x: TensorContract, operand: str) -> tuple[str, ...]:
    """Return lines that make A or B in float64, each block of it multiplied by its factor, in PyTorch."""
    values, name = dtype(operand).values, x.name[-1]
    scaled, spread = f"scaled_{name}", _spread(x, values)
    if values == 1:
        return (f"{scaled} = {name}.double() * {spread}",)
    return (
        f'{scaled} = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device="cuda").double()',
        f"{scaled} = torch.cat(({scaled}, -{scaled}))[torch.stack(({name} & 15, {name} >> 4), -1).flatten(1).long()]",
        f"{scaled} *= {spread}",
    )


def _spread(x: TensorContract, values: int = 1) -> str:
    """Return factors of blocks in float64, one for each of the `values` of each element of the matrix, in PyTorch."""
    if x.block_elems > 1:
        return _of_words(x, values)
    factors = f"{x.name}.double()"
    for dim, (of, mode) in enumerate(zip(x.block or (), x.modes, strict=True)):
        if of > 1:
            factors += f".repeat_interleave({of}, {dim}){'[:, ' if dim else '['}:{mode}]"
    return factors


def _words(x: TensorContract) -> tuple[str, ...]:
    """Return lines that make random words of factors and take their codes apart, one a row and block, in PyTorch."""
    (rows, of_k), (first, second) = x.block or (1, 1), x.modes
    shape, codes = f"-(-{first} // {rows}), -(-{second} // {of_k}) * {x.block_elems * PER_WORD}", _codes(x)
    atoms = f"{x.name}.shape[0], -1, {COLUMN_ROWS}, {rows // COLUMN_ROWS}, {PER_WORD}"
    return (
        f'{codes} = torch.randint(110, 120, ({shape}), device="cuda").to(torch.uint8)',
        f"{x.name} = {codes}.view(torch.int32)",
        f"{codes} = {codes}.view({atoms}).permute(0, 3, 2, 1, 4).reshape({rows} * {x.name}.shape[0], -1)",
    )


def _codes(x: TensorContract) -> str:
    """Return the name of the factors' codes."""
    return x.name.replace("scale", "codes")


def _of_words(x: TensorContract, values: int) -> str:
    """Return the factors of words for each of the `values` of each element of an operand, in PyTorch."""
    (_, of_k), (first, second) = x.block or (1, 1), x.modes
    of_codes = "({}.double() - 127).exp2()" if x.dtype.startswith("ue8m0") else "{}.view(torch.float8_e4m3fn).double()"
    columns = second if values == 1 else f" {values} * {second}"
    return f"{of_codes.format(_codes(x))}.repeat_interleave({of_k * values // PER_WORD}, 1)[:{first}, :{columns}]"


def _poison(plan: GemmPlan) -> str:
    """Return C before the launch, in PyTorch: zeros if CTAs add to it, else what no kernel leaves by chance."""
    c, rows = plan.epilogue.dtype, plan.epilogue.major == "n"
    value = "0.0" if plan.launch.adds_to_result else "170" if c.is_unsigned else "-1" if c.is_integer else "torch.nan"
    modes = plan.launch.tensor(RESULT).modes
    shape = f"({', '.join(modes if rows else modes[::-1])})"
    made = f'torch.full({shape}, {value}, dtype=torch.{c.torch_name}, device="cuda")'
    return made if rows else f"{made}.T"


def checked_mnk(plan: GemmPlan) -> tuple[int, ...]:
    """Return the self-check's problem: odd multiples of the widest alignment, near `CHECKED_MNK`.

    With an alignment of 128 bytes a CTA tile may divide them.
    """
    pairs = plan.epilogue.fusion.pairs
    unit = max(
        16,
        1 if pairs is None else pairs.multiple,
        *(x.align_bytes // dtype(x.dtype).bytes for x in plan.launch.tensors),
    )
    return tuple(unit * (extent // unit | 1) for extent in CHECKED_MNK)


def agreement(plan: GemmPlan) -> float | None:
    """Return the relative difference up to which elements agree, or None if norms are compared."""
    if not any(_amplifies(step.expression) for step in plan.epilogue.fusion.steps if step.expression):
        return None
    return max(LEAST_AGREEMENT, *(2.0 ** (2 - (x.significand_bits or 24)) for x in epilogue.stored_types(plan)))


def _amplifies(expression: Expression) -> bool:
    """Return whether results may overflow, be rounded to 0 or be far less exact than sums.

    The causes are an exponential, a divisor near 0, a power of x, and a number that is far from 1.
    """
    match expression:
        case Call("exp"):
            return True
        case Number(value):
            return value != 0 and not 2.0**-8 <= abs(value) <= 2.0**4
        case Binary("/", _, right) if not isinstance(right, Number):
            return True
        case Binary("*", left, right) if "x" in names_of(left) and "x" in names_of(right):
            return True
        case _:
            return any(map(_amplifies, parts_of(expression)))


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
    if element.values > 1:
        return f'torch.randint(0, 256, {shape}, dtype=torch.{element.torch_name}, device="cuda")'
    if element.is_integer:
        least = 0 if element.is_unsigned else -8
        return f'torch.randint({least}, 9, {shape}, dtype=torch.{element.torch_name}, device="cuda")'
    return f'torch.randn({shape}, device="cuda").to(torch.{element.torch_name})'


def tolerance(plan: GemmPlan) -> float:
    """Return the relative error that the self-check allows, by norms.

    C is rounded, and so are sums: their errors are a random walk, with one step per atom of the least K. A tensor core
    truncates float sums to float32 instead, always towards zero, so its errors add up. tf32 drops 13 bits of an
    operand. The tensor cores of sm_89 keep 13 bits of sums of 8-bit floats in each instruction. Integers are exact.
    """
    (_, _, checked_k), atom_k, sums = checked_mnk(plan), plan.atom.shape_mnk[2], plan.atom.c_dtype
    steps = checked_k // LEAST_ATOM_K
    exact = sums.is_integer and not plan.epilogue.fusion.steps
    error = 2 * max(_rounding(x, exact=exact) for x in epilogue.stored_types(plan))
    error += isqrt(steps) * _rounding(sums, exact=True)
    if atom_k > 1 and not sums.is_integer:
        error += steps * 2.0**-24
    if plan.atom.a_dtype.name == "tf32":
        error += 2.0**-9
    if plan.atom.a_dtype.is_float8:
        error += -(-checked_k // atom_k) * 2.0**-13
    return float(f"{error:.1e}")


def _rounding(element: DType, *, exact: bool) -> float:
    """Return the unit roundoff; an integer may be off by one if its value is not `exact` and near a tie."""
    if element.significand_bits is not None:
        return 2.0**-element.significand_bits
    return 2.0**-24 if exact and element.bits == 32 else 2.0**-8
