"""From a call's torch tensors to a launch: one look-up by their attributes, once such a call was made before.

What depends on attributes was judged by the first call. Addresses are looked at each time: how they are aligned, and
where an `out` is given, whether it lies apart. Whatever is out of the ordinary goes the thorough way again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from cutegen.contract.problem import ProblemShape
from cutegen.dispatch.formula import Formula, check_activation
from cutegen.dispatch.patience import be_patient
from cutegen.dispatch.placement import Copy
from cutegen.dispatch.providers import providers
from cutegen.dispatch.ready import Ready, make_ready, ordered
from cutegen.dispatch.resolve import Resolved, resolve
from cutegen.dispatch.settings import settings
from cutegen.hardware import dtype as element_type
from cutegen.run.call.operands import Form, name_of, view_of
from cutegen.torch_ops import by_torch
from cutegen.torch_ops.switches import tf32_allowed, where

_REMEMBERED_CALLS = 1024
_TERMS = ("bias", "activation", "residual", "alpha", "beta", "c", "scale_a", "scale_b")


TENSORS = ("a", "b", "bias", "residual", "c", "scale_a", "scale_b", "out")
"""The names of a call's tensors."""


class Call(NamedTuple):
    """The arguments of a call; with `aux` the value before the activation is asked for too."""

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

    @property
    def formula(self) -> Formula:
        """Its terms. Raises RequestError."""
        check_activation(self.activation)
        terms = ("alpha", "c", "bias", "residual", "scale_a", "scale_b")
        return Formula(self.activation, aux=self.aux, **{name: getattr(self, name) is not None for name in terms})

    @property
    def has_more(self) -> bool:
        """Whether it is more than `activation(a @ b + bias)`."""
        _, _, _, _, *others, aux = self
        return aux or any(each is not None for each in others)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Those that are given, by name."""
        named = {name: getattr(self, name) for name in TENSORS}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers that a kernel takes; where there is a c, beta is 1 by default."""
        numbers = {} if self.alpha is None else {"alpha": float(self.alpha)}
        return numbers if self.c is None else {**numbers, "beta": 1.0 if self.beta is None else float(self.beta)}


class _Known(NamedTuple):
    """What is left to do for a call that was made before.

    `low` are the address bits that must be 0, in the order of `names`, which is the kernel's: a, b, out, and others.
    """

    launch: Callable[[tuple[int, ...], tuple[float, ...], int], object]
    check_addresses: Callable[[tuple[int, ...]], None]
    low: tuple[int, ...]
    names: tuple[str, ...]
    allocate: Callable[[], Tensor]
    stream: Callable[[], int]


class _Table(threading.local):
    """The calls that a thread has made: a launch's parameter block is not to be shared."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], _Known] = {}
        self.changes = -1


_table = _Table()


def plain(a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None) -> Tensor | None:
    """The result of `activation(a @ b + bias)`, if such a call was made before with such tensors; else None."""
    known = _table.known.get(_plain_key(a, b, bias, activation))
    if known is None or _table.changes != providers.changes + settings.changes or a.is_neg() or b.is_neg():
        return None
    at_a, at_b, low = a.data_ptr(), b.data_ptr(), known.low
    if at_a & low[0] or at_b & low[1]:
        return None
    if bias is None:
        out = known.allocate()
        known.launch((at_a, at_b, out.data_ptr()), (), known.stream())
        return out
    at_bias = bias.data_ptr()
    if at_bias & low[3] or bias.is_neg():
        return None
    out = known.allocate()
    known.launch((at_a, at_b, out.data_ptr(), at_bias), (), known.stream())
    return out


def _plain_key(a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None) -> tuple[object, ...]:
    dtype = a.dtype
    key: tuple[object, ...] = (a.shape, a.stride(), dtype, a.device, b.shape, b.stride(), b.dtype, b.device, activation)
    if bias is not None:
        key = (*key, bias.shape, bias.stride(), bias.dtype, bias.device)
    return (*key, tf32_allowed()) if dtype is torch.float32 else key


def _key(call: Call) -> tuple[object, ...]:
    """All that a call's kernel and launch depend on but the addresses."""
    key = _plain_key(call.a, call.b, call.bias, call.activation)
    if not call.has_more:
        return key
    others = (
        None if x is None else (x.shape, x.stride(), x.dtype, x.device)
        for x in (call.residual, call.c, call.scale_a, call.scale_b, call.out)
    )
    return (*key, *others, call.alpha is None, call.out_dtype, call.aux)


def _again(call: Call) -> tuple[Tensor, Tensor | None] | None:
    """The result of a call like one that was made before; None where it must go the thorough way."""
    known = _table.known.get(_key(call))
    if known is None or _table.changes != providers.changes + settings.changes:
        return None
    tensors = call.tensors
    if any(tensor.is_neg() for tensor in tensors.values()):
        return None
    out = tensors["out"] if call.out is not None else known.allocate()
    aux = known.allocate() if call.aux else None
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    addresses["out"] = out.data_ptr()
    if aux is not None:
        addresses["aux"] = aux.data_ptr()
    pointers = tuple([addresses[name] for name in known.names])
    if any(pointer & low for pointer, low in zip(pointers, known.low, strict=True)):
        return None
    if call.out is not None:
        known.check_addresses(pointers)
    known.launch(pointers, ordered(call.scalars), known.stream())
    if call.out is not None:
        torch.autograd.graph.increment_version(out)
    return out, aux


def compute(call: Call) -> tuple[Tensor, Tensor | None]:
    """The result, and the value before the activation where it is asked for; `out` is the result if it is given.

    Raises OperandError, RequestError, and on a GPU what finding and launching a kernel does.
    """
    device = call.a.device
    if device.type == "cpu" and settings.cpu_tensors == "torch":
        return _by_torch(call)
    if (found := _again(call)) is not None:
        return found
    resolved = resolved_call(call)
    out = call.out
    if out is None or resolved.out_copied:
        out = _empty(resolved, device)
    aux = _empty(resolved, device) if call.aux else None
    if not resolved.empty:
        _launch(call, resolved, out, aux)
    if call.out is not None and out is not call.out:
        call.out.copy_(out)
        return call.out, aux
    if call.out is not None:
        torch.autograd.graph.increment_version(call.out)
    return out, aux


def resolved_call(call: Call) -> Resolved:
    """What a call asks for. Raises OperandError, RequestError."""
    return resolved_tensors(call.tensors, call.formula, call.out_dtype)


def resolved_tensors(
    tensors: Mapping[str, Tensor], formula: Formula, out_dtype: torch.dtype | str | None, arch: str | None = None
) -> Resolved:
    """What a call with these tensors asks for, on the target `arch` if it is given. Raises OperandError, RequestError.

    Tensors on the device "meta" stand for aligned ones on a GPU of that target, or of the default one.
    """
    a = tensors["a"]
    with torch.no_grad():
        given = {name: _form(tensor, name) for name, tensor in tensors.items()}
    asked = None if out_dtype is None else name_of(str(out_dtype).removeprefix("torch."))
    least = "sm_89" if a.dtype.itemsize == 1 and a.is_floating_point() else "sm_80"
    return resolve(given, formula, where(a.device, least=least, arch=arch), asked)


def _form(tensor: Tensor, name: str) -> tuple[Form, int]:
    if tensor.device.type == "meta":
        dtype = name_of(str(tensor.dtype).removeprefix("torch."))
        return Form(tuple(tensor.shape), tensor.stride(), dtype, ("meta", 0), "torch", read_only=False), 0
    view = view_of(tensor.resolve_neg() if tensor.is_neg() else tensor, name)
    return view.form, view.pointer


def _launch(call: Call, resolved: Resolved, out: Tensor, aux: Tensor | None) -> None:
    used = call.tensors | {"out": out} | ({} if aux is None else {"aux": aux})
    for name, tensor in used.items():
        if tensor.is_neg():
            used[name] = tensor.resolve_neg()
        if (copy := resolved.placements[name].copy) is not None:
            used[name] = _copied(used[name], copy)
    on_gpu = call.a.device.type == "cuda"
    if not on_gpu:
        problem = resolved.problem
        be_patient(resolved.request, ProblemShape(problem.m, problem.n, problem.k, problem.batches))
    ready = make_ready(resolved, compiling=not (on_gpu and torch.cuda.is_current_stream_capturing()))
    stream = torch.cuda.current_stream(call.a.device).cuda_stream if on_gpu else 0
    ready({name: tensor.data_ptr() for name, tensor in used.items()}, call.scalars, stream)
    if on_gpu and not resolved.copies:
        _remember(call, resolved, ready, out)


def _remember(call: Call, resolved: Resolved, ready: Ready, out: Tensor) -> None:
    """Know a call of this form from now on."""
    changes = providers.changes + settings.changes
    if _table.changes != changes or len(_table.known) >= _REMEMBERED_CALLS:
        _table.known, _table.changes = {}, changes
    launch = ready.prepared.launch
    assert launch is not None
    _table.known[_key(call)] = _Known(
        launch=launch,
        check_addresses=ready.prepared.check_addresses,
        low=tuple(resolved.placements[name].matrix.align_bytes - 1 for name in ready.names),
        names=ready.names,
        allocate=partial(torch.empty, out.shape, dtype=out.dtype, device=out.device),
        stream=partial(torch._C._cuda_getCurrentRawStream, out.device.index),
    )


def _by_torch(call: Call) -> tuple[Tensor, Tensor | None]:
    """On the CPU by torch, after the same judgement, so that what a GPU refuses is refused here too."""
    resolved = resolved_call(call)
    dtype = getattr(torch, element_type(resolved.dtype).torch_name)
    terms = {name: getattr(call, name) for name in _TERMS}
    with torch.no_grad():
        found, before = by_torch.compute(call.a, call.b, dtype=dtype, **terms)
    aux = None if not call.aux else before.clone() if before is found else before.contiguous()
    if call.out is None:
        return found.contiguous(), aux
    call.out.copy_(found)
    return call.out, aux


def _empty(resolved: Resolved, device: torch.device) -> Tensor:
    return torch.empty(
        resolved.problem.result, dtype=getattr(torch, element_type(resolved.dtype).torch_name), device=device
    )


def _copied(tensor: Tensor, copy: Copy) -> Tensor:
    memory = torch.empty(copy.elems, dtype=tensor.dtype, device=tensor.device)
    made = memory.as_strided(copy.shape, copy.strides)
    made.copy_(tensor.reshape(copy.seen))
    return made
