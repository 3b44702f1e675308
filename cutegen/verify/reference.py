"""Random operands, the float64 reference, and a comparison that bounds the error and finds the first wrong element."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.contract.launch import OPERANDS, RESULT, LaunchContract, TensorContract
from cutegen.contract.problem import QUANTIZED_BLOCK, QUANTIZED_FLOOR, QUANTIZED_MOST, FactorsOfC, ProblemShape
from cutegen.errors import DeviceError, OperandError, RequestError
from cutegen.hardware import WORDS, DType, dtype
from cutegen.hardware.factor_atoms import PER_WORD, unblocked
from cutegen.run.call.bits import bf16_bits, bf16_values, float8_bits, float8_values
from cutegen.run.call.storage import CallTensor, call_tensor, numpy_dtype
from cutegen.spec import NARROW_BITS, STORE, VECTORS, chain_of, guards_source
from cutegen.verify.error_bounds import UNIT, Bounded, Outcome, run_chain
from cutegen.verify.grouped import GroupedCall

_HALF_STEP = {"f16": 2.0**-25, "f32": 2.0**-150}
"""Half the smallest step of an accumulator: the rounding error of subnormal sums."""
# Largest results of a conversion to the type: cvt.satfinite, and the clamps of generated kernels.
_LIMITS = {
    "e4m3": (-448.0, 448.0),
    "e5m2": (-57344.0, 57344.0),
    "s8": (-128.0, 127.0),
    "u8": (0.0, 255.0),
    "s32": (-(2.0**31), 2.0**31 - 1),
}
_MMA_K = 8  # smallest K of a tensor-core instruction, which gives the most additions into an accumulator
_F8_MMA_K = 32
_F8_SUM_BITS = 13
_INTEGER_SPREAD = 8.0
_SMALL_SPREAD = 1.0  # for 8-bit results, most of which would saturate otherwise
_HIGH_BIT_BEYOND = 3.0
"""Size of normal numbers from which unsigned integers have the bit that is the sign of signed ones."""
_POISON = {"s8": -86.0, "u8": 170.0, "s32": -1431655766.0, **dict.fromkeys(WORDS, -1.0), "e2m1x2": 119.0}
"""Integers of bytes 0xaa, and none at an end of its type, where results saturate; words of factors that are NaN."""
_RANDOM_CODES = {"ue8m0x4": (120, 135), "ue4m3x4": (0x28, 0x58), "e2m1x2": (0, 256)}
"""Bytes of random factors in words, about 1, and of random pairs."""
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Reference:
    """`product` is A B in float64, (M,N). Its rounding errors are proportional to `scale`, (M,N).

    `scale[i, j]` = |A row i| |B column j| / sqrt(K): the size of a sum of such terms without cancellation. Both may
    have a batch before their extents. `operands` is A's type. `largest`, |A| |B|, is no less than any partial sum: it
    is there if the operands are not known to be independent.
    """

    product: Any
    scale: Any
    k: int
    operands: str = ""
    largest: Any = None

    def bounded(self, accumulator: str) -> Bounded:
        """Return the sums with the error that `compare` allows: 2 g(K) hypot(scale, product / 2) + e; 0 for integers.

        e is the tensor core's own error: 2**-9 |product| + 2**-9 scale for tf32, 2 * 2**-13 (n + 5 sqrt(n)) scale with
        n = K / 32 for 8-bit floats with float32 sums. With `largest`, that takes the place of the hypotenuse.
        """
        if dtype(accumulator).is_integer:
            return Bounded(self.product, 0 * self.scale)
        partial_sums = (self.scale**2 + self.product**2 / 4) ** 0.5 if self.largest is None else self.largest
        error = 2 * accumulation_error(accumulator, self.k) * partial_sums + self.k * _HALF_STEP[accumulator]
        if self.operands == "tf32":
            error = error + 2.0**-9 * abs(self.product) + 2.0**-9 * self.scale
        if self.operands in ("e4m3", "e5m2") and accumulator == "f32":
            cut = math.ceil(self.k / _F8_MMA_K)
            error = error + 2 * 2.0**-_F8_SUM_BITS * (cut + 5 * math.sqrt(cut)) * self.scale
        return Bounded(self.product, error)


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """The first element, in row-major order, that is out of bounds."""

    row: int
    column: int
    found: float
    expected: float
    allowed_error: float
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`rel_error` = |out - product| / |product| (Frobenius norms); `ok` if every element is within its bound."""

    rel_error: float
    max_abs_error: float
    wrong: int
    first_wrong: FirstWrong | None

    @property
    def ok(self) -> bool:
        """True if every element is within its bound. A NaN never is."""
        return self.first_wrong is None


def random_operands(
    contract: LaunchContract,
    m: int,
    n: int,
    k: int,
    *,
    seed: int,
    batch: int | None = None,
    groups: int | None = None,
    framework: str = "numpy",
    device: str = "cpu",
) -> tuple[Any, Any, Any]:
    """Return fresh `a` (M,K), `b` (K,N) of normal data and a poisoned `out` (M,N), in the contract's memory layouts.

    With `batch`, return L of each; with `groups`, as many of those that have one for each. Integers are normal with
    standard deviation 8, or 1 if C has 8 bits, rounded;
    unsigned ones are their absolute values, 128 more for one in 370. Padding of leading strides is NaN, so a kernel
    that reads it returns NaN; `out` is all NaN, so an unwritten element shows. (Integers are bytes 0xaa.) `framework`
    is "torch", or "numpy", which holds the bits of bf16 in uint16 and those of 8-bit floats in uint8.

    Raises DeviceError if torch sees no GPU and `device` is one, RequestError for groups without their number.
    """
    if contract.groups is not None and groups is None:
        raise RequestError(
            f"problem.groups: found {contract.groups} where one product is measured; expected a spec without groups; "
            "`cutegen bench --groups` measures packed groups, and `cutegen run --sizes` checks groups"
        )
    a, b, out = (call_tensor(contract.tensor(role), contract.groups) for role in (*OPERANDS, RESULT))
    source = _source(framework, device, seed)
    lead = partial(_lead, batch=batch, groups=groups)
    spread = _SMALL_SPREAD if out.dtype.is_integer and out.dtype.bits == 8 else _INTEGER_SPREAD
    return (
        source.matrix(a, (*lead(a), m, k), spread),
        source.matrix(b, (*lead(b), k, n), spread),
        source.poisoned(out, (*lead(out), *out.extents(ProblemShape(m, n, k)))),
    )


def _lead(tensor: CallTensor, *, batch: int | None, groups: int | None) -> tuple[int, ...]:
    """Return the extent before those of one matrix or vector, if there is one."""
    number = batch if groups is None else None if tensor.packed else groups
    return () if number is None else (number,)


def random_extras(
    contract: LaunchContract,
    m: int,
    n: int,
    *,
    seed: int,
    k: int = 0,
    batch: int | None = None,
    groups: int | None = None,
    framework: str = "numpy",
    device: str = "cpu",
) -> dict[str, Any]:
    """Return factors and epilogue operands of a call by argument name: normal data, with `aux` poisoned.

    Only factors depend on `k`.
    """
    extras: dict[str, Any] = {}
    if contract.factors:
        source = _source(framework, device, seed + 2)
        for tensor in (call_tensor(x, contract.groups) for x in contract.factors):
            lead = _lead(tensor, batch=batch, groups=groups)
            extras[tensor.name] = source.matrix(tensor, (*lead, *tensor.extents(ProblemShape(m, n, k, groups=groups))))
    if not contract.scalars and not contract.beside_result:
        return extras
    source = _source(framework, device, seed + 1)
    extras |= {name: float(np.float32(source.number())) for name in contract.scalars}
    for tensor in (call_tensor(x, contract.groups) for x in contract.beside_result):
        lead = _lead(tensor, batch=batch, groups=groups)
        shape = (*lead, *tensor.extents(ProblemShape(m, n, k)))
        make = source.poisoned if tensor.written else source.matrix if len(tensor.modes) == 2 else source.vector
        extras[tensor.name] = make(tensor, shape)
    return extras


def _source(framework: str, device: str, seed: int) -> _TorchSource | _NumpySource:
    return _TorchSource(device, seed) if framework == "torch" else _NumpySource(seed)


class _NumpySource:
    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def number(self) -> float:
        return float(self._generator.standard_normal())

    def vector(self, tensor: CallTensor, shape: tuple[int, ...], spread: float = _INTEGER_SPREAD) -> Any:
        if (codes := _RANDOM_CODES.get(tensor.dtype.name)) is not None:
            found = self._generator.integers(*codes, (*shape, tensor.dtype.bytes), np.uint8)
            return found.view(numpy_dtype(tensor.dtype.torch_name))[..., 0]
        return _to_numpy(_spread_out(self._generator.standard_normal(shape, np.float32), tensor, spread), tensor.dtype)

    def matrix(self, tensor: CallTensor, shape: tuple[int, ...], spread: float = _INTEGER_SPREAD) -> Any:
        matrix = self.poisoned(tensor, shape)
        matrix[...] = self.vector(tensor, shape, spread)
        return matrix

    def poisoned(self, tensor: CallTensor, shape: tuple[int, ...]) -> Any:
        storage = tensor.storage(shape)
        value = _to_numpy(np.array([poison(tensor.dtype.name)]), tensor.dtype)[0]
        flat = np.full(storage.host_elems, value, numpy_dtype(tensor.dtype.torch_name))
        return storage.matrix(storage.host_buffer(flat, flat.ctypes.data))


def _to_numpy(values: np.ndarray[Any, Any], element: DType) -> np.ndarray[Any, Any]:
    if element.name == "bf16":
        return bf16_bits(values)
    if element.name in ("e4m3", "e5m2"):
        return float8_bits(values, element.name)
    return values.astype(numpy_dtype(element.torch_name))


def _spread_out(normal: Any, tensor: CallTensor, spread: float) -> Any:
    """Return normal numbers, NumPy's or torch's, as values of the tensor's type: unchanged if it is of floats."""
    if not tensor.dtype.is_integer:
        return normal
    values = spread * normal
    if tensor.dtype.is_unsigned:
        values = abs(values) + 128 * (abs(normal) > _HIGH_BIT_BEYOND)
    return values.round().clip(*_LIMITS[tensor.dtype.name])


def poison(element: str) -> float:
    """Return a value of the type that no kernel computes by chance: NaN, or an integer within the range."""
    return _POISON.get(element, math.nan)


def require_torch_gpu() -> None:
    """Raise DeviceError if torch sees no GPU."""
    import torch

    if not torch.cuda.is_available():
        raise DeviceError("torch sees no GPU; GPU operands need a torch built with CUDA, and a driver")


class _TorchSource:
    def __init__(self, device: str, seed: int) -> None:
        import torch

        if device != "cpu":
            require_torch_gpu()
        self._torch, self._device = torch, device
        self._generator = torch.Generator(device).manual_seed(seed)

    def number(self) -> float:
        return float(self._torch.randn((), generator=self._generator, device=self._device))

    def vector(self, tensor: CallTensor, shape: tuple[int, ...], spread: float = _INTEGER_SPREAD) -> Any:
        if (codes := _RANDOM_CODES.get(tensor.dtype.name)) is not None:
            bytes_of = (*shape, tensor.dtype.bytes)
            found = self._torch.randint(*codes, bytes_of, generator=self._generator, device=self._device)
            return found.to(self._torch.uint8).view(getattr(self._torch, tensor.dtype.torch_name))[..., 0]
        normal = self._torch.randn(shape, generator=self._generator, device=self._device)
        return _spread_out(normal, tensor, spread).to(getattr(self._torch, tensor.dtype.torch_name))

    def matrix(self, tensor: CallTensor, shape: tuple[int, ...], spread: float = _INTEGER_SPREAD) -> Any:
        return self.poisoned(tensor, shape).copy_(self.vector(tensor, shape, spread))

    def poisoned(self, tensor: CallTensor, shape: tuple[int, ...]) -> Any:
        storage = tensor.storage(shape)
        dtype = getattr(self._torch, tensor.dtype.torch_name)
        value = poison(tensor.dtype.name)
        flat = self._torch.full((storage.host_elems,), value, dtype=dtype, device=self._device)
        return storage.matrix(storage.host_buffer(flat, flat.data_ptr()))


def float64_reference(
    a: Any,
    b: Any,
    contract: LaunchContract | None = None,
    extras: Mapping[str, Any] | None = None,
    *,
    independent: bool = True,
) -> Reference:
    """Return A B in float64 for `a` (M,K) and `b` (K,N), both torch or both NumPy, on their device.

    Each may have a batch before its extents. The `contract` defines how a kernel reads them: uint8 may be e4m3 or e5m2,
    and f32 may be tf32. Factors of their blocks are among the `extras`. Elements that are not `independent`, as a
    caller's, may have larger partial sums, which takes a second product to know.
    """
    types = ("", "") if contract is None else tuple(x.dtype for x in contract.operands)
    a, b = float64(a, types[0]), float64(b.swapaxes(-1, -2), types[1]).swapaxes(-1, -2)
    if contract is not None and contract.factors:
        assert extras is not None
        of_a, of_b = contract.factors
        (factors_a, (rows, k_a)), (factors_b, (columns, k_b)) = (
            _factors(of_a, extras["scale_a"], dtype(types[0]).values),
            _factors(of_b, extras["scale_b"].swapaxes(-1, -2), dtype(types[1]).values),
        )
        a = a * spread_factors(factors_a, (rows, k_a), a.shape)
        b = b * spread_factors(factors_b.swapaxes(-1, -2), (k_b, columns), b.shape)
    k = a.shape[-1]
    rows, columns = (a * a).sum(-1) ** 0.5, (b * b).sum(-2) ** 0.5
    # An instruction that reads factors in words keeps all bits of an f32 sum.
    operands = "" if contract is not None and any(x.dtype in WORDS for x in contract.factors) else types[0]
    largest = None if independent else abs(a) @ abs(b)
    return Reference(a @ b, rows[..., :, None] * columns[..., None, :] / max(1, k) ** 0.5, k, operands, largest)


def _factors(tensor: TensorContract, array: Any, values: int) -> tuple[Any, tuple[int, int]]:
    """Return factors of (M|N, K) in float64, and the block of each, in `values` of which an element has several."""
    rows, of_k = tensor.block or (1, 1)
    of_k *= values
    if tensor.block_elems == 1:
        return float64(array), (rows, of_k)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        values = decoded_words(array.contiguous().cpu().numpy(), tensor.dtype)
        return torch.from_numpy(values).to(array.device), (1, of_k // PER_WORD)
    return decoded_words(array, tensor.dtype), (1, of_k // PER_WORD)


def decoded_words(words: Any, name: str) -> Any:
    """Return the factors of words of atoms, NumPy's (..., rows / 128, words along K), in the order of rows and K."""
    codes = unblocked(words)
    if name == "ue8m0x4":
        return np.where(codes == 0xFF, np.nan, np.exp2(codes.astype(np.float64) - 127))
    return float8_values(codes & 0x7F, "e4m3").astype(np.float64)


def spread_factors(factors: Any, block: tuple[int, int], shape: tuple[int, ...]) -> Any:
    """Return factors of blocks, NumPy's or torch's, repeated for each element of a matrix, or batch, of `shape`."""
    for axis, each in ((-2, block[0]), (-1, block[1])):
        if isinstance(factors, np.ndarray):
            factors = factors.repeat(each, axis)
        else:
            factors = factors.repeat_interleave(each, axis)
    return factors[..., : shape[-2], : shape[-1]]


def expected_outcome(
    contract: LaunchContract,
    a: Any,
    b: Any,
    extras: Mapping[str, Any],
    *,
    accumulator: str = "f32",
    left: float = 0.0,
    independent: bool = True,
) -> Outcome:
    """Return the result of a call, and its `aux`, in float64 with bounds; `extras` are the call's other arguments.

    The chain of the contract's epilogue starts from A B with the error that `compare` allows. Elements that no group
    has are `left`. `independent` is as in `float64_reference`.
    """
    if contract.groups is not None:
        of_one = partial(expected_outcome, accumulator=accumulator, independent=independent)
        return GroupedCall.of(contract, a, b, extras).outcome(of_one, left)
    chain = chain_of(contract.epilogue)
    read = {x.name: x for x in _read(contract)}
    names = {x.name: f"bias_{x.modes[-1]}" if x.name == "bias" else x.name for x in read.values()}
    operands: dict[str, Any] = {
        names[name]: _in_float32(float64(value, read[name].contract.dtype))
        for name, value in extras.items()
        if name in names
    }
    operands |= {name: float(np.float32(extras[name])) for name in contract.scalars}
    if guards_source(chain) and operands["beta"] == 0:
        operands["c"] = 0.0
    for name in set(operands) & set(VECTORS):
        operands[name] = _spread(operands[name], name[-1])
    sums = float64_reference(a, b, contract, extras, independent=independent).bounded(accumulator)
    if dtype(accumulator).is_integer and (chain or contract.tensor(RESULT).dtype != accumulator):
        sums = Bounded(sums.value, sums.error + UNIT * abs(sums.value))  # sums of 2^24 and more are rounded to f32
    narrow = all(dtype(x.dtype).bits <= NARROW_BITS for x in contract.tensors if x.name in (RESULT, STORE))
    outcome = run_chain(sums, chain, operands, narrow=narrow, pairs=contract.pairs)
    if contract.quantized is None:
        return outcome
    values, factors = quantized_result(outcome.result, contract.tensor(RESULT).dtype, contract.quantized)
    return Outcome(values, outcome.aux, factors)


def _in_float32(values: Any) -> Any:
    """Return float64 values, NumPy's or torch's, as an epilogue reads them: s32 is rounded."""
    if isinstance(values, np.ndarray | np.generic):
        return values.astype(np.float32).astype(np.float64)
    return values.float().double()


def _spread(vector: Any, mode: str) -> Any:
    """Return a vector along M or N, or a batch of them, in the shape that combines with (M,N); a number stays one."""
    if vector.ndim == 0:
        return vector
    return vector[..., :, None] if mode == "m" else vector[..., None, :]


def _read(contract: LaunchContract) -> list[CallTensor]:
    return [tensor for tensor in map(call_tensor, contract.beside_result) if not tensor.written]


def compare(out: Any, reference: Reference | Bounded, *, dtype: str, accumulator: str = "f32") -> Comparison:
    """Compare `out`, whose elements are `dtype`, with the reference. An element passes when it lies in

        [nearest(product - error), nearest(product + error)],  error = 2 g(K) hypot(scale, product / 2) + e
        g(K) = u(accumulator) sqrt(K) + 2**-24 K / 8

    `nearest` rounds once to `dtype`, ties to even; 8-bit floats and integers are clamped to their range. The last
    rounding therefore gets no tolerance of its own: if the error is 0, or too small to cross the midpoint between two
    values, only one value passes. The check finds a truncated result, or one that is off by one step everywhere, if the
    error of the sum is smaller than a step of `dtype`. u is the unit roundoff (f16 2**-11, f32 2**-24).

    g is the accumulation: K independent roundings, plus what the tensor core truncates instead of rounding, always
    towards zero, once per instruction (K >= 8), with at least float32's precision. The rounded values are partial sums:
    for a large product they grow towards it, for a small one they are as large as scale. Integers sum without error.
    For f32 C at K = 4096 the bound is some hundred steps, so no comparison with a product distinguishes an error of a
    few steps from what a tensor core may do.

    e is what a tensor core discards from operands and sums. It reads 11 significant bits of tf32: each of the two
    operands of a product loses up to 2**-10 of itself, half of that on average. This gives a loss of 2**-10 |product|
    and a deviation from it of K independent terms, each at most 2**-10 of the product of its elements: e = 2**-9
    (|product| + scale). For sums of products of 8-bit floats, the tensor cores of sm_89, and of sm_90 in wgmma, keep 13
    bits after the point, truncated towards zero in each of the n = K / 32 instructions: 2 * 2**-13 scale on average.
    The truncations all go towards zero and add up, n of them. They are independent, and each deviates from the average
    by less than the average: their sum deviates by at most sqrt(n), and beyond five times that in one element of 3.5
    million: e = 2 * 2**-13 (n + 5 sqrt(n)) scale. (mma.sync of sm_90 multiplies such floats as f16 and stays within g.
    Zhang et al., "SageAttention2", arXiv 2411.10958.)

    For a `Bounded` value from `expected_outcome`, the error is its bound.

    Raises OperandError if the shapes differ.
    """
    expected = reference.bounded(accumulator) if isinstance(reference, Reference) else reference
    product = expected.value
    if tuple(out.shape) != tuple(product.shape):
        raise OperandError(
            operand="out",
            found=f"shape {tuple(out.shape)}",
            expected=f"the reference's {tuple(product.shape)}",
        )
    found = float64(out, dtype)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no distance from themselves
        low, high = _nearest(product - expected.error, dtype), _nearest(product + expected.error, dtype)
        bounded = expected.error + 0.0 * (product == product) != math.inf  # of the product's shape, NaN or not
        within = (low <= found) & (found <= high) | (found == product)
        wrong = ~within & bounded  # not `found < low`, which is false for NaN
        if dtype in _LIMITS:
            product = product.clip(*_LIMITS[dtype])
        error, length = abs(found - product), abs(product)
        error[~bounded | (found == product)] = 0.0
        length[~bounded | (length == math.inf)] = 0.0
        norm = float((length * length).sum()) ** 0.5
        error_norm = float((error * error).sum()) ** 0.5
    return Comparison(
        rel_error=error_norm / norm if norm else error_norm,
        max_abs_error=float(error.max()) if 0 not in error.shape else 0.0,
        wrong=int(wrong.sum()),
        first_wrong=_first_wrong(wrong, found, product, (low, high)),
    )


def _nearest(values: Any, name: str) -> Any:
    """Return a conversion of float64 to the type, as float64: to nearest, ties to even, clamped if the type clamps."""
    element = dtype(name)
    if name in _LIMITS:
        values = values.clip(*_LIMITS[name])
    if element.is_integer:
        return values.round()  # ties to even
    if isinstance(values, np.ndarray | np.generic):
        with np.errstate(over="ignore", invalid="ignore"):
            return float64(_to_numpy(np.asarray(values), element), name)
    return values.to(getattr(sys.modules["torch"], element.torch_name)).double()


def nearest_bits(values: Any, name: str) -> Any:
    """Return NumPy's float64 as the nearest values of a type, in NumPy's carrier of it; clamped if the type clamps."""
    element = dtype(name)
    if name in _LIMITS:
        values = values.clip(*_LIMITS[name])
    with np.errstate(over="ignore", invalid="ignore"):
        return (
            values.round().astype(numpy_dtype(element.torch_name)) if element.is_integer else _to_numpy(values, element)
        )


def accumulation_error(accumulator: str, k: int) -> float:
    """Return g(K) of `compare`: the error of a sum of K products, relative to `Reference.scale`.

    >>> accumulation_error("f32", 4096) < 4e-5 < 0.03 < accumulation_error("f16", 4096)
    True
    """
    return _unit_roundoff(accumulator) * math.sqrt(k) + UNIT * k / _MMA_K


def _unit_roundoff(name: str) -> float:
    """Return half the distance between 1 and the next value: the largest relative error of one rounding."""
    bits = dtype(name).significand_bits
    return 0.0 if bits is None else 2.0**-bits


def _first_wrong(wrong: Any, found: Any, product: Any, passes: tuple[Any, Any]) -> FirstWrong | None:
    if not bool(wrong.any()):
        return None
    # [0][0] is the first index both in NumPy's tuple of index arrays and in torch's (n, 1) tensor.
    index, column = divmod(int(wrong.reshape(-1).nonzero()[0][0]), wrong.shape[-1])
    batch, row = divmod(index, wrong.shape[-2])
    at = (row, column) if wrong.ndim == 2 else (batch, row, column)
    in_batch = None if wrong.ndim == 2 else batch
    expected, low, high = (float(x[at]) for x in (product, *passes))
    return FirstWrong(row, column, float(found[at]), expected, max(expected - low, high - expected), in_batch)


def float64(array: Any, name: str = "") -> Any:
    """Return the values of a torch or NumPy array as float64; uint16 is read as bf16, uint8 as the type `name`.

    Values of pairs lie along the last mode.
    """
    torch = sys.modules.get("torch")
    if name == "e2m1x2":
        return _pairs(array)
    if torch is not None and isinstance(array, torch.Tensor):
        return array.double()
    if array.dtype == np.uint16:
        array = bf16_values(array)
    elif array.dtype == np.uint8 and name in ("e4m3", "e5m2"):
        array = float8_values(array, name)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one, which NumPy warns of
        return array.astype(np.float64)


def _pairs(codes: Any) -> Any:
    """Return the values of bytes of two e2m1, the first in the low bits: (..., K) as (..., 2 K)."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(codes, torch.Tensor):
        return torch.from_numpy(_pairs(codes.cpu().numpy())).to(codes.device)
    table = np.array((*_E2M1, *(-value for value in _E2M1)))
    return table[np.stack((codes & 15, codes >> 4), -1)].reshape(*codes.shape[:-1], 2 * codes.shape[-1])


# The expected result of a kernel that quantizes C: values and factors in float64, with bounds.


_ROUNDINGS = 3
"""Roundings of a value to float32 before that to its type: of the factor, of its inverse, and of their product."""


def quantized_result(x: Bounded, element: str, scale: FactorsOfC) -> tuple[Bounded, Bounded]:
    """Return the values of C before they are rounded to `element`, and the factors of its blocks.

    Where the error of a largest magnitude includes a power of two, so do the errors of such a factor and of its block.
    """
    with np.errstate(all="ignore"):  # an unbounded error makes that of its block unbounded
        value, error = _numpy(x.value), _numpy(x.error + 0.0 * x.value)
        largest = [_largest(abs(value) + sign * error) * (1 + sign * 2 * UNIT) for sign in (-1, 1)]
        low, high = (_stored_factors(each, QUANTIZED_MOST[element], scale) for each in largest)
        own = _stored_factors(_largest(abs(value)), QUANTIZED_MOST[element], scale)
        off = np.maximum(high - own, own - low)
        s, s_off = (_spread_over_columns(each, value.shape[-1]) for each in (own, off))
        share = s_off / np.maximum(s - s_off, 0.25 * s) + _ROUNDINGS * UNIT
        values = Bounded(value / s, error / s + abs(value) / s * share)
    return _like(x.value, values), _like(x.value, Bounded(own, off))


def _largest(x: Any) -> Any:
    """Return the largest number of each 128 columns, of which the last may be fewer, and at least 0."""
    width = QUANTIZED_BLOCK[1]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % width)])
    return padded.reshape(*x.shape[:-1], padded.shape[-1] // width, width).max(-1).clip(min=0.0)


def _stored_factors(largest: Any, most: float, scale: FactorsOfC) -> Any:
    """Return the factors for the largest magnitudes of blocks."""
    factors = np.maximum(largest, float(np.float32(QUANTIZED_FLOOR))) / most
    return factors if scale == "f32" else np.exp2(np.ceil(np.log2(factors)))


def _spread_over_columns(factors: Any, columns: int) -> Any:
    return factors.repeat(QUANTIZED_BLOCK[1], -1)[..., :columns]


def _numpy(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.cpu().numpy()


def _like(example: Any, made: Bounded) -> Bounded:
    """Return NumPy's arrays as those of the example's framework and device."""
    if isinstance(example, np.ndarray):
        return made
    import torch

    return Bounded(*(torch.from_numpy(each).to(example.device) for each in (made.value, made.error)))


# The distance of results from float64 in steps of their type: 0 is the nearest value, 1 its neighbor.


BINS = (0, 1, 2, 4, 16, 256)
"""The least number of steps of each bin of a histogram; the last is open."""


def steps(found: NDArray[Any], expected: NDArray[np.float64], element: str) -> NDArray[np.int64]:
    """Return the steps between results, in NumPy's carrier of `element`, and the values nearest to `expected`.

    >>> steps(np.array([1, 1.001], np.float16), np.array([1.0, 1.0]), "f16")
    array([0, 1])
    """
    return steps_between(found, nearest_bits(expected, element), element)


def steps_between(some: NDArray[Any], others: NDArray[Any], element: str) -> NDArray[np.int64]:
    """Return the steps between two results, both in NumPy's carrier of `element`."""
    return abs(_ordered(some, element) - _ordered(others, element))


def histogram(distances: NDArray[np.int64]) -> Mapping[str, int]:
    """Return how many elements are so many steps off, by the range of steps.

    >>> dict(histogram(np.array([0, 0, 1, 3, 300])))
    {'0': 2, '1': 1, '2-3': 1, '4-15': 0, '16-255': 0, '256-': 1}
    """
    ends = (*BINS[1:], None)
    counts = np.histogram(distances, (*BINS, np.iinfo(np.int64).max))[0]
    names = [
        str(first) if end == first + 1 else f"{first}-{'' if end is None else end - 1}"
        for first, end in zip(BINS, ends, strict=True)
    ]
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _ordered(values: NDArray[Any], element: str) -> NDArray[np.int64]:
    """Return numbers that count the values of a type in their order; both zeros are 0."""
    if dtype(element).is_integer:
        return values.astype(np.int64)
    bits = values.view(f"i{values.itemsize}").astype(np.int64)
    sign = -(1 << 8 * values.itemsize - 1)
    return np.where(bits < 0, sign - bits, bits)
