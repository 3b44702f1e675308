"""From a call's torch tensors to its result, on GPU or CPU."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from cutegen.build.record import say_unrecorded
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.dispatch import quantized
from cutegen.dispatch.block_scales import LEAST_OF_ATOMS, LEAST_TARGET, blocks_in_call, in_atoms, members_have_blocks
from cutegen.dispatch.cpu_time_guard import guard_cpu_time
from cutegen.dispatch.formula import BY_VECTORS, LEAST_OF_PAIRS, Formula, Gated, gated_of, takes_any_pairs
from cutegen.dispatch.placement import Placement, major_of
from cutegen.dispatch.prepared_call import prepare_call
from cutegen.dispatch.providers import providers
from cutegen.dispatch.resolve import Resolved, product_of, resolve, with_rows
from cutegen.dispatch.settings import settings
from cutegen.errors import OperandError
from cutegen.hardware import PACKED, Instruction
from cutegen.hardware.factor_atoms import BLOCK_VALUES, PER_WORD
from cutegen.run.call.memory_overlap import share_memory
from cutegen.run.call.operands import Form, view_of
from cutegen.support.environment import record_file
from cutegen.torch_ops import call_cache, cpu_reference, first_use
from cutegen.torch_ops.activations import activated
from cutegen.torch_ops.call import AnyCall, Call, QuantizedCall, dtype_name, dtype_of
from cutegen.torch_ops.quantize import quantize
from cutegen.torch_ops.switches import call_target


def compute(call: Call) -> tuple[Tensor, Tensor | None]:
    """Return the result, and the value before the activation if requested, or the factors of a quantized result.

    `out` is the result if given.

    Raises OperandError, RequestError, and on a GPU the errors of finding and launching a kernel.
    """
    device = call.a.device
    if device.type == "cpu" and settings.cpu_tensors == "torch":
        return _by_torch(call)
    if call.quantize is not None:
        return _with_factors(call)
    if (gated := gated_of(call.activation)) is not None and not _joins_pairs(call, gated):
        return _apart(call, gated), None
    if (found := call_cache.replay(call)) is not None:
        return found
    resolved = resolved_call(call)
    if gated is None:
        return computed(call, resolved, _of_torch)
    if not (resolved.empty or providers.has_kernel(resolved.request)):
        return _apart(call, gated), None
    return computed(call, resolved, lambda *_: (_apart(call, gated), None))


Compute = Callable[[Any, Resolved], tuple[Tensor, Tensor | None]]
"""Computes a resolved call by torch: the result, and the value before the activation if requested."""


def computed(call: AnyCall, resolved: Resolved, by_torch: Compute) -> tuple[Tensor, Tensor | None]:
    """Return the result of a resolved call by its kernel, and the value before the activation if requested.

    A call that only families may serve whose kernels have run on hardware is computed `by_torch` if they have none.
    Raises the errors of finding and launching a kernel.
    """
    if not resolved.empty and providers.leaves_to_torch(resolved.request):
        return by_torch(call, resolved)
    device, out = call.a.device, call.out
    if out is None or resolved.out_copied:
        out = _empty(resolved, device)
        if call.out is not None and resolved.request.groups is not None:  # what no group has stays
            out.copy_(call.out)
    elif out.is_neg():  # its memory holds negated values: torch writes it, from memory of the same layout
        out = out.resolve_neg()
    aux = _empty(resolved, device) if call.aux else None
    if not resolved.empty:
        if not _launch(call, resolved, out, aux):
            return by_torch(call, resolved)
    elif resolved.clears:
        out.zero_()
        if RESULT_FACTORS in call.placed:
            call.placed[RESULT_FACTORS].zero_()
    dtype = dtype_of(resolved.dtype)  # the kernel's C may be wider
    out, aux = cpu_reference.rounded(out, dtype), None if aux is None else cpu_reference.rounded(aux, dtype)
    if call.out is not None and out is not call.out:
        call.out.copy_(out)
        return call.out, aux
    if call.out is not None:
        torch.autograd.graph.increment_version(call.out)
    return out, aux


def _with_factors(call: Call) -> tuple[Tensor, Tensor]:
    """Return a quantized result and its factors, by one kernel where there are such kernels."""
    target = call_target(call.a.device, least=quantized.LEAST_OF_QUANTIZED).target
    gated = gated_of(call.activation)
    if not quantized.has_kernel(target, dtype_name(call.a.dtype)) or not (gated is None or _joins_pairs(call, gated)):
        return _quantized_apart(call)
    factors = call.scale_c
    if factors is None:
        forms = {name: form_of(tensor) for name, tensor in call.tensors.items()}
        factors = empty_factors(quantized.new_factors(product_of(forms, quantized.ELEMENT, gated)[0]), call.a)
        call = call._replace(scale_c=factors)
    else:
        torch.autograd.graph.increment_version(factors)
    if (found := call_cache.replay(call)) is None:
        resolved = resolved_call(call)
        if not (resolved.empty or providers.has_kernel(resolved.request)):
            return _quantized_apart(call)
        found = computed(call, resolved, lambda *_: _quantized_apart(call))
    return found[0], factors


def empty_factors(place: quantized.Strided, like: Tensor) -> Tensor:
    """Return new factors of a quantized result, on the device of `like`, which may be fake."""
    return like.new_empty(place.elems, dtype=torch.float32).as_strided(place.shape, place.strides)


def _quantized_apart(call: Call) -> tuple[Tensor, Tensor]:
    """Compute the product in f32 by a kernel, and quantize it by torch."""
    resolved = resolved_call(call)
    with torch.no_grad():
        wide = compute(call._replace(quantize=None, out=None, scale_c=None, out_dtype=torch.float32))[0]
        return handed(call, *quantized_as(call.quantize, wide, quantized.new_factors(resolved.problem)))


def quantized_as(asked: str | None, wide: Tensor, place: quantized.Strided) -> tuple[Tensor, Tensor]:
    """Return values and factors of a result in f32, in the layouts of kernels."""
    scale = quantized.factors_of(asked)
    assert scale is not None
    values, factors = quantize(wide.reshape(-1, wide.shape[-1]), scale=scale)
    return values.reshape(wide.shape), empty_factors(place, wide).copy_(factors.reshape(place.shape))


def handed(call: QuantizedCall, values: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and factors, in the memory that the call gives."""
    return (
        values if call.out is None else call.out.copy_(values),
        factors if call.scale_c is None else call.scale_c.copy_(factors),
    )


class _Multiplication(Protocol):
    """A call of one product, or of groups."""

    @property
    def a(self) -> Tensor:
        """The first operand."""

    @property
    def b(self) -> Tensor:
        """The second operand, whose columns may be pairs."""

    @property
    def scale_a(self) -> Tensor | None:
        """Factors of the first operand."""

    @property
    def scale_b(self) -> Tensor | None:
        """Factors of the second operand."""


def target_of_pairs(call: _Multiplication, arch: str | None = None) -> str:
    """Return the target of the kernels for a call's device, or `arch`. The executor runs those of one with pairs."""
    return call_target(call.a.device, least=LEAST_OF_PAIRS, arch=arch).target


def takes_pairs(call: _Multiplication, arch: str | None = None) -> bool:
    """Return whether kernels for a call's device, or the target `arch`, take its pairs.

    Where only `mma.sync` multiplies, those of 16 bits whose B is contiguous along K do, without factors.
    """
    if takes_any_pairs(target_of_pairs(call, arch)):
        return True
    b = form_of(call.b)
    scaled = call.scale_a is not None or call.scale_b is not None
    return b.dtype in BY_VECTORS and not scaled and major_of(b, prefer_last=False) is False


def _joins_pairs(call: Call, gated: Gated) -> bool:
    """Return whether a kernel makes one column of the sums of each pair."""
    if not takes_pairs(call):
        return False
    if call.scale_b is None:
        return True
    forms = {name: form_of(x) for name, x in call.tensors.items()}
    return members_have_blocks(forms, gated.pairs, target_of_pairs(call))


def _apart(call: Call, gated: Gated) -> Tensor:
    """Compute the product by a kernel, and its activation of pairs by torch.

    The product is rounded to its own type, or with factors of blocks, whose operands have no such type, to f32.
    """
    resolved = resolved_call(call)
    dtype = None if call.scale_a is None else torch.float32
    with torch.no_grad():
        before, _ = compute(call._replace(activation=None, residual=None, out=None, out_dtype=dtype))
        found = activated(gated, before.to(torch.float32))
        if call.residual is not None:
            found = found + call.residual.to(torch.float32)
        found = cpu_reference.rounded(found, dtype_of(resolved.dtype))
    return found if call.out is None else call.out.copy_(found)


def resolved_call(call: Call) -> Resolved:
    """Return the request of a call. Raises OperandError, RequestError."""
    return resolved_tensors(call.tensors, call.formula, call.out_dtype)


def resolved_tensors(
    tensors: Mapping[str, Tensor],
    formula: Formula,
    out_dtype: torch.dtype | str | None,
    arch: str | None = None,
    rows: int | None = None,
) -> Resolved:
    """Return the request of a call, optionally on the target `arch` and for an `a` with so many `rows`.

    Raises OperandError, RequestError.

    Tensors on the device "meta" represent aligned ones on a GPU of that target, or of the default one. Fake tensors
    represent aligned ones on their device.
    """
    a = tensors["a"]
    with torch.no_grad():
        given = {name: form_at(tensor, name) for name, tensor in tensors.items()}
    asked = None if out_dtype is None else dtype_name(out_dtype)
    least = "sm_89" if a.dtype.itemsize == 1 and a.is_floating_point() else "sm_80"
    least = least if formula.gated is None and formula.quantized is None else LEAST_OF_PAIRS
    if formula.quantized is not None:
        asked = quantized.ELEMENT
    forms, needs = {name: form for name, (form, _) in given.items()}, None
    if in_atoms(forms):
        least, needs = LEAST_OF_ATOMS, Instruction.TCGEN05
    elif blocks_in_call(forms):
        least = LEAST_TARGET
    where = call_target(a.device, least=least, arch=arch, needs=needs)
    return resolve(with_rows(given, rows), formula, where, asked)


def form_at(tensor: Tensor, name: str) -> tuple[Form, int]:
    """Return a tensor's form and address; 0 for one without memory. Raises OperandError."""
    if tensor.device.type == "meta" or isinstance(tensor, FakeTensor):
        return form_of(tensor), 0
    view = view_of(tensor.resolve_neg() if tensor.is_neg() else tensor, name)
    return view.form, view.pointer


def form_of(tensor: Tensor) -> Form:
    """Return the form of a strided tensor, also if it has no address."""
    device = tensor.device.type, tensor.device.index or 0
    return Form(tuple(tensor.shape), tensor.stride(), dtype_name(tensor.dtype), device, "torch", read_only=False)


def _launch(call: AnyCall, resolved: Resolved, out: Tensor, aux: Tensor | None) -> bool:
    """Launch a call's kernel; return False if its result was wrong, and no other kernel may serve the call."""
    used = call.placed | {"out": out} | ({} if aux is None else {"aux": aux})
    for name, tensor in used.items():
        if tensor.is_neg():
            used[name] = tensor.resolve_neg()
        used[name] = _carried(used[name], resolved.placements[name])
        if (placed := resolved.placements[name]).copy is not None:
            used[name] = copied(used[name], placed)
    on_gpu = call.a.device.type == "cuda"
    if not on_gpu:
        guard_cpu_time(resolved)
    capturing = on_gpu and torch.cuda.is_current_stream_capturing()
    ready = prepare_call(resolved, compiling=not capturing)
    stream = torch.cuda.current_stream(call.a.device).cuda_stream if on_gpu else 0
    launch = first_use.Launch(used, call.scalars, stream)
    if not first_use.is_due(resolved, ready):
        launch(ready)
    elif (served := first_use.launched(launch, resolved, ready, capturing=capturing)) is None:
        return False
    else:
        ready = served
    # A copy without the negative bit may have another layout. A recorded program's calls are counted one by one.
    if not (resolved.copies or call_cache.is_negative(call) or record_file() is not None):
        call_cache.remember(call, resolved, ready, out)
    return True


def _carried(tensor: Tensor, placed: Placement) -> Tensor:
    """Return a tensor in a type that torch computes with: pairs of values as bytes, factors of 8 bits as words."""
    if placed.matrix.dtype in BLOCK_VALUES:
        codes = tensor.contiguous().view(torch.uint8).reshape(-1)
        return (codes.clone() if codes.storage_offset() % PER_WORD else codes).view(torch.int32)
    return tensor.view(torch.uint8) if placed.matrix.dtype in PACKED else tensor


def _by_torch(call: Call) -> tuple[Tensor, Tensor | None]:
    """Compute on the CPU with torch, after the same checks, so that it rejects what a GPU rejects."""
    say_unrecorded(
        "torch computes the calls in host memory", "cutegen.prepare(model, *inputs, arch=...) records a model's"
    )
    resolved = resolved_call(call)
    if call.out is not None and not (resolved.empty or resolved.out_copied):
        read = {name: tensor for name, tensor in call.tensors.items() if name not in {"out", *resolved.copies}}
        check_apart(call.out, read)
    return _of_torch(call, resolved)


def _of_torch(call: Call, resolved: Resolved) -> tuple[Tensor, Tensor | None]:
    """Compute a resolved call with torch, on the device of its tensors."""
    with torch.no_grad():
        if call.quantize is not None:
            wide, _ = cpu_reference.compute(call, torch.float32)
            return handed(call, *quantized_as(call.quantize, wide, quantized.new_factors(resolved.problem)))
        found, before = cpu_reference.compute(call, dtype_of(resolved.dtype))
    aux = None if not call.aux else before.clone() if before is found else before.contiguous()
    if call.out is None:
        return found.contiguous(), aux
    call.out.copy_(found)
    return call.out, aux


def check_apart(out: Tensor, tensors: Mapping[str, Tensor]) -> None:
    """Reject a result that shares memory with operands that a kernel still reads, as `check_apart` does."""
    form, pointer = form_at(out, "out")
    for name, tensor in tensors.items():
        other, at = form_at(tensor, name)
        in_place = name in ("c", "residual") and (other, at) == (form, pointer)
        if not in_place and share_memory(form, pointer, other, at):
            raise OperandError(
                operand="out",
                found=f"memory shared with {name}",
                expected="separate memory, as on a GPU, which reads operands while it writes results",
                fix="omit out=, or use `torch.empty_like(out)`",
            )


def _empty(resolved: Resolved, device: torch.device) -> Tensor:
    """Return memory for what a kernel stores, in the type of its C."""
    return torch.empty(resolved.problem.result, dtype=dtype_of(resolved.request.c.dtype), device=device)


def copied(tensor: Tensor, placed: Placement) -> Tensor:
    """Return the copy of a tensor that its placement asks for, as elements of the type that the kernel reads."""
    copy = placed.copy
    assert copy is not None
    memory = torch.empty(copy.elems, dtype=dtype_of(placed.form.dtype), device=tensor.device)
    made = memory.as_strided(copy.shape, copy.strides)
    made.copy_(tensor.reshape(copy.seen))
    return made
