"""The arguments of a call with torch tensors, as one value."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from cutegen.dispatch.formula import TENSORS, Formula, is_gated, scalars_of
from cutegen.dispatch.placement import VECTOR_BYTES
from cutegen.dispatch.shapes import result_type
from cutegen.hardware import dtype as element_type
from cutegen.run.call.operands import name_of
from cutegen.torch_ops.switches import tf32_allowed

ARGUMENTS = 13
"""The arguments of an op."""


class Like(NamedTuple):
    """Attributes of an operand that its gradient has as well. They take no memory, unlike its values."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, x: Tensor) -> Self:
        """Return those of `x`."""
        return cls(x.shape, x.stride(), x.dtype)


class AnyCall(Protocol):
    """A call as it is computed, and found again: with its tensors by name, and what its kernel and launch depend on."""

    @property
    def a(self) -> Tensor: ...
    @property
    def b(self) -> Tensor: ...
    @property
    def out(self) -> Tensor | None: ...
    @property
    def aux(self) -> bool: ...
    @property
    def tensors(self) -> dict[str, Tensor]: ...
    @property
    def placed(self) -> dict[str, Tensor]:
        """The tensors by the names of their placements."""

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that kernel and launch depend on, of the addresses only their alignment."""

    @property
    def scalars(self) -> Mapping[str, float]: ...


class QuantizedCall(Protocol):
    """A call with memory for values and factors of its result, or for neither."""

    @property
    def out(self) -> Tensor | None: ...
    @property
    def scale_c(self) -> Tensor | None: ...


class Call(NamedTuple):
    """The arguments of a call; `aux` requests the value before the activation as well.

    With `quantize` the result has factors, which are written to `scale_c` if that is given, as the result to `out`.
    `scale_m` and `scale_n` are factors of all of A and of B beside those of their blocks.
    """

    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    activation: str | None = None
    residual: Tensor | None = None
    alpha: float | None = None
    beta: float | None = None
    c: Tensor | None = None
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None
    out: Tensor | None = None
    out_dtype: torch.dtype | None = None
    aux: bool = False
    quantize: str | None = None
    scale_c: Tensor | None = None
    scale_m: Tensor | None = None
    scale_n: Tensor | None = None

    @classmethod
    def of_arguments(cls, given: tuple[Any, ...]) -> Self:
        """Return the call of an op with these arguments, some of the last of which may be left out."""
        whole: tuple[Any, ...] = given + (None,) * (ARGUMENTS - len(given))
        *first, out_dtype, scale_m, scale_n = whole
        return cls(*first)._replace(out_dtype=out_dtype, scale_m=scale_m, scale_n=scale_n)

    @property
    def formula(self) -> Formula:
        """Its terms. Raises RequestError."""
        return Formula.of(self, aux=self.aux)

    @property
    def has_more(self) -> bool:
        """True if it is more than `activation(a @ b + bias)`, with or without `out`."""
        others = (self.residual, self.alpha, self.beta, self.c, self.scale_a, self.scale_b, self.out_dtype)
        return self.aux or self.quantize is not None or any(each is not None for each in others)

    @property
    def keeps_before(self) -> bool:
        """True if the gradient needs the value before the activation: for relu alone the result is enough.

        Sums of pairs of columns are computed again: a kernel does not store them.
        """
        if self.activation is None or is_gated(self.activation):
            return False
        return self.activation != "relu" or self.residual is not None

    @property
    def wants_grad(self) -> bool:
        """True if autograd must record the call."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors.values())

    @property
    def of_op(self) -> tuple[Any, ...]:
        """The arguments of the op: all but its keyword `out`. Raises RequestError for an invalid `out_dtype`."""
        return (*self[:10], torch_type(self.out_dtype), self.scale_m, self.scale_n)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The given ones, by name."""
        named = {name: getattr(self, name) for name in TENSORS}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @property
    def placed(self) -> dict[str, Tensor]:
        """The tensors by the names of their placements."""
        return self.tensors

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that kernel and launch depend on, of the addresses only their alignment."""
        a, b, bias, out = self.a, self.b, self.bias, self.out
        key = (*attributes(a), *attributes(b), self.activation)
        if bias is not None:
            key = (*key, *attributes(bias))
        if out is not None:
            key = (*key, None, *attributes(out))
        if self.has_more:
            others = (self.residual, self.c, self.scale_a, self.scale_b, self.scale_m, self.scale_n)
            key = (*key, *[None if x is None else attributes(x) for x in others])
            key = (*key, self.alpha is None, self.out_dtype, self.aux, self.quantize)
            if self.scale_c is not None:
                key = (*key, *attributes(self.scale_c))
        return (*key, tf32_allowed()) if a.dtype is torch.float32 else key

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers that a kernel takes."""
        return scalars_of(self)


def attributes(x: Tensor) -> tuple[object, ...]:
    """Return what a kernel depends on of a tensor: all but its values, and of its address the alignment."""
    address = x.data_ptr()
    return x.shape, x.stride(), x.dtype, x.device, address & -address & (VECTOR_BYTES - 1)


def torch_type(asked: torch.dtype | str | None, function: str = "matmul") -> torch.dtype | None:
    """Return a `function`'s `out_dtype` for the op, whose schema has no names. Raises RequestError otherwise."""
    if asked is None or isinstance(asked, torch.dtype):
        return asked
    return dtype_of(result_type("f32", dtype_name(asked), function))


def dtype_name(dtype: torch.dtype | str) -> str:
    """Return the spec's name of torch's type, or of its name in torch."""
    return name_of(str(dtype).removeprefix("torch."))


def dtype_of(name: str) -> torch.dtype:
    """Return torch's type for a spec's name."""
    found: torch.dtype = getattr(torch, element_type(name).torch_name)
    return found
