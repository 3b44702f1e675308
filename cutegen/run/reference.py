"""Random operands, the float64 reference, and a comparison that says how wrong a result may be and where it is."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutegen.errors import DeviceError, OperandError
from cutegen.plan.launch import LaunchContract
from cutegen.run.bounded import Bounded, Outcome, run_chain
from cutegen.run.storage import CallTensor, call_tensors, numpy_dtype
from cutegen.spec import chain_of, guards_source

# Half the distance between 1 and the next value: the largest relative error of one rounding.
_UNIT_ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}
_SMALLEST_STEP = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149}
_MMA_K = 8  # the least K of one tensor-core instruction, so the most additions into an accumulator


@dataclass(frozen=True, slots=True)
class Reference:
    """`product` is A B in float64, (M,N). `scale` is what its rounding errors are proportional to, (M,N).

    `scale[i, j]` = |A row i| |B column j| / sqrt(K): how large a sum of such terms is when they do not cancel. Both may
    have a batch before their extents.
    """

    product: Any
    scale: Any
    k: int

    def bounded(self, accumulator: str) -> Bounded:
        """The sums, with the error 2 g(K) scale that `compare` allows them."""
        return Bounded(self.product, 2 * accumulation_error(accumulator, self.k) * self.scale)


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
    """`rel_error` = |out - product| / |product| (Frobenius norms); `ok` when every element is within its bound."""

    rel_error: float
    max_abs_error: float
    wrong: int
    first_wrong: FirstWrong | None

    @property
    def ok(self) -> bool:
        """Whether every element is within its bound. A NaN never is."""
        return self.first_wrong is None


def random_operands(
    contract: LaunchContract,
    m: int,
    n: int,
    k: int,
    *,
    seed: int,
    batch: int | None = None,
    framework: str = "numpy",
    device: str = "cpu",
) -> tuple[Any, Any, Any]:
    """Fresh `a` (M,K), `b` (K,N) of normal data and a poisoned `out` (M,N), as the contract wants them in memory.

    With `batch`, L of each. Where leading strides are padded, the padding is NaN, so that a kernel that reads it gives
    NaN; `out` is all NaN, so that an element not written shows. `framework` is "numpy" (bf16 as its bits in uint16) or
    "torch".

    Raises DeviceError when torch sees no GPU and `device` is one.
    """
    a, b, out, *_ = call_tensors(contract)
    source = _source(framework, device, seed)
    lead = () if batch is None else (batch,)
    return source.matrix(a, (*lead, m, k)), source.matrix(b, (*lead, k, n)), source.poisoned(out, (*lead, m, n))


def random_extras(
    contract: LaunchContract,
    m: int,
    n: int,
    *,
    seed: int,
    batch: int | None = None,
    framework: str = "numpy",
    device: str = "cpu",
) -> dict[str, Any]:
    """What a call passes to the epilogue beside A and B, by the names of its arguments: normal data, `aux` poisoned."""
    if not contract.epilogue:
        return {}
    source = _source(framework, device, seed + 1)
    lead = () if batch is None else (batch,)
    extras: dict[str, Any] = {name: float(np.float32(source.number())) for name in contract.scalars}
    for tensor in call_tensors(contract)[3:]:
        shape = (*lead, *({"m": m, "n": n}[mode] for mode in tensor.modes))
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

    def vector(self, tensor: CallTensor, shape: tuple[int, ...]) -> Any:
        values = self._generator.standard_normal(shape, np.float32)
        return (bf16_bits(values) if tensor.contract.dtype == "bf16" else values).astype(
            numpy_dtype(tensor.dtype.torch_name)
        )

    def matrix(self, tensor: CallTensor, shape: tuple[int, ...]) -> Any:
        matrix = self.poisoned(tensor, shape)
        matrix[...] = self.vector(tensor, shape)
        return matrix

    def poisoned(self, tensor: CallTensor, shape: tuple[int, ...]) -> Any:
        storage = tensor.storage(shape)
        nan = 0x7FC0 if tensor.contract.dtype == "bf16" else np.nan
        flat = np.full(storage.host_elems, nan, numpy_dtype(tensor.dtype.torch_name))
        return storage.matrix(storage.host_buffer(flat, flat.ctypes.data))


class _TorchSource:
    def __init__(self, device: str, seed: int) -> None:
        import torch

        if device != "cpu" and not torch.cuda.is_available():
            raise DeviceError("torch sees no GPU; operands there need a torch built with CUDA, and a driver")
        self._torch, self._device = torch, device
        self._generator = torch.Generator(device).manual_seed(seed)

    def number(self) -> float:
        return float(self._torch.randn((), generator=self._generator, device=self._device))

    def vector(self, tensor: CallTensor, shape: tuple[int, ...]) -> Any:
        values = self._torch.randn(shape, generator=self._generator, device=self._device)
        return values.to(getattr(self._torch, tensor.dtype.torch_name))

    def matrix(self, tensor: CallTensor, shape: tuple[int, ...]) -> Any:
        return self.poisoned(tensor, shape).copy_(self.vector(tensor, shape))

    def poisoned(self, tensor: CallTensor, shape: tuple[int, ...]) -> Any:
        storage = tensor.storage(shape)
        dtype = getattr(self._torch, tensor.dtype.torch_name)
        flat = self._torch.full((storage.host_elems,), math.nan, dtype=dtype, device=self._device)
        return storage.matrix(storage.host_buffer(flat, flat.data_ptr()))


def float64_reference(a: Any, b: Any) -> Reference:
    """A B in float64 of `a` (M,K) and `b` (K,N), both torch or both NumPy, on the device where they are.

    Each may have a batch before its extents.
    """
    a, b = float64(a), float64(b)
    k = a.shape[-1]
    rows, columns = (a * a).sum(-1) ** 0.5, (b * b).sum(-2) ** 0.5
    return Reference(a @ b, rows[..., :, None] * columns[..., None, :] / max(1, k) ** 0.5, k)


def expected_outcome(
    contract: LaunchContract, a: Any, b: Any, extras: Mapping[str, Any], *, accumulator: str = "f32"
) -> Outcome:
    """The result of a call, and its `aux`, in float64 with their bounds; `extras` are the call's other arguments.

    The chain of the contract's epilogue starts from A B with the error that `compare` allows it.
    """
    chain = chain_of(contract.epilogue)
    names = {x.name: f"bias_{x.modes[-1]}" if x.name == "bias" else x.name for x in _read(contract)}
    operands: dict[str, Any] = {names[name]: float64(value) for name, value in extras.items() if name in names}
    operands |= {name: float(extras[name]) for name in contract.scalars}
    if guards_source(chain) and operands["beta"] == 0:
        operands["c"] = 0.0
    if "bias_m" in operands:
        operands["bias_m"] = operands["bias_m"][..., :, None]
    if "bias_n" in operands:
        operands["bias_n"] = operands["bias_n"][..., None, :]
    return run_chain(float64_reference(a, b).bounded(accumulator), chain, operands)


def _read(contract: LaunchContract) -> list[CallTensor]:
    return [tensor for tensor in call_tensors(contract)[3:] if not tensor.written]


def compare(out: Any, reference: Reference | Bounded, *, dtype: str, accumulator: str = "f32") -> Comparison:
    """Compare `out`, whose elements are `dtype`, with the reference. An element passes when

        |out - product| <= 2 u(dtype) |product| + 2 g(K) scale + s(dtype)
        g(K) = u(accumulator) sqrt(K) + 2**-24 K / 8

    u is the unit roundoff (f16 2**-11, bf16 2**-8, f32 2**-24) and s the smallest step of `dtype`. The first term is
    the last rounding. g is the accumulation: K roundings that do not know of each other, plus what the tensor core cuts
    off instead of rounding, always towards zero, once per instruction (K >= 8) at no less than float32's precision.

    Of a `Bounded` value, as `expected_outcome` gives it, the error stands in place of 2 g(K) scale.

    Raises OperandError when the shapes differ.
    """
    expected = reference.bounded(accumulator) if isinstance(reference, Reference) else reference
    product = expected.value
    if tuple(out.shape) != tuple(product.shape):
        raise OperandError(
            operand="out",
            found=f"shape {tuple(out.shape)}",
            expected=f"the reference's {tuple(product.shape)}",
        )
    found = float64(out)
    error = abs(found - product)
    bound = 2 * _UNIT_ROUNDOFF[dtype] * abs(product) + expected.error + _SMALLEST_STEP[dtype]
    wrong = ~(error <= bound)  # not `error > bound`, which is false for NaN
    norm = float((product * product).sum()) ** 0.5
    error_norm = float((error * error).sum()) ** 0.5
    return Comparison(
        rel_error=error_norm / norm if norm else error_norm,
        max_abs_error=float(error.max()) if 0 not in error.shape else 0.0,
        wrong=int(wrong.sum()),
        first_wrong=_first_wrong(wrong, found, product, bound),
    )


def accumulation_error(accumulator: str, k: int) -> float:
    """g(K) of `compare`: the error of a sum of K products, relative to `Reference.scale`.

    >>> accumulation_error("f32", 4096) < 4e-5 < 0.03 < accumulation_error("f16", 4096)
    True
    """
    return _UNIT_ROUNDOFF[accumulator] * math.sqrt(k) + _UNIT_ROUNDOFF["f32"] * k / _MMA_K


def _first_wrong(wrong: Any, found: Any, product: Any, bound: Any) -> FirstWrong | None:
    if not bool(wrong.any()):
        return None
    # Of NumPy's tuple of index arrays as of torch's (n, 1) tensor, [0][0] is the first index.
    index, column = divmod(int(wrong.reshape(-1).nonzero()[0][0]), wrong.shape[-1])
    batch, row = divmod(index, wrong.shape[-2])
    at = (row, column) if wrong.ndim == 2 else (batch, row, column)
    in_batch = None if wrong.ndim == 2 else batch
    return FirstWrong(row, column, float(found[at]), float(product[at]), float(bound[at]), in_batch)


def float64(array: Any) -> Any:
    """The values of a torch or NumPy array as float64; uint16 is taken as bf16."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.double()
    return bf16_values(array).astype(np.float64) if array.dtype == np.uint16 else array.astype(np.float64)


def bf16_bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of bf16, in uint16, nearest to `values` (ties to even; NaN stays NaN).

    >>> [hex(bits) for bits in bf16_bits(np.array([1.0, -2.5, np.nan]))]
    ['0x3f80', '0xc020', '0x7fc0']
    """
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def bf16_values(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 values of bf16's bits.

    >>> bf16_values(np.array([0x3F80], np.uint16))
    array([1.], dtype=float32)
    """
    return (bits.astype(np.uint32) << 16).view(np.float32)
