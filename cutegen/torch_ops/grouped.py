"""`cutegen.grouped_mm` of torch tensors: as ops that torch supports, with gradients by the other forms."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cutegen.contract.launch import ENDS, RESULT_FACTORS
from cutegen.contract.problem import ProblemShape
from cutegen.dispatch import grouped
from cutegen.dispatch.block_scales import LEAST_OF_ATOMS, LEAST_TARGET, SCALES, SECOND
from cutegen.dispatch.formula import LEAST_OF_PAIRS, check_activation, gated_of, is_gated
from cutegen.dispatch.providers import providers
from cutegen.dispatch.quantized import ELEMENT, LEAST_OF_QUANTIZED, factors_of, has_kernel
from cutegen.dispatch.resolve import Resolved, with_rows
from cutegen.dispatch.settings import settings
from cutegen.errors import RequestError
from cutegen.hardware import Instruction
from cutegen.torch_ops import call_cache, eager, gradients
from cutegen.torch_ops.activations import activated, activation_name
from cutegen.torch_ops.call import attributes, dtype_name, dtype_of, torch_type
from cutegen.torch_ops.call_cache import count_write, is_undisturbed, keep_guards, launch_again, lookup
from cutegen.torch_ops.cpu_reference import ACTIVATIONS, multiply, rounded, scaled
from cutegen.torch_ops.flops import register_flops
from cutegen.torch_ops.gradients import refuse_to_be_recorded, through, wide
from cutegen.torch_ops.micro_scales_of_groups import scaled_by_groups, vectors
from cutegen.torch_ops.ops import NAMESPACE, autocast, library, refuse_out_with_grad
from cutegen.torch_ops.quantize import TYPES
from cutegen.torch_ops.switches import call_target, tf32_allowed

# The backward passes of `cutegen.grouped_mm`: the gradients of each form are products of the other forms.
#
#     form                            gradient of a                    gradient of b
#     y (R,N) = a (R,K) b (G,K,N)     dy (R,N) b.mT (G,N,K)            a.mT (K,R) dy (R,N)
#     y (M,C) = a (G,M,K) b (K,C)     dy (M,C) b.mT (C,K)              a.mT (G,K,M) dy (M,C)
#     y (G,M,N) = a (M,K) b (K,N)     dy (G,M,N) b.mT (N,K)            a.mT (K,M) dy (G,M,N)
#     y (G,R,N) = a (G,R,K) b (G,K,N) dy (G,R,N) b.mT (G,N,K), padded  a.mT dy, of rows that a group has
#
# Nothing waits for the host. What no group has of a gradient is 0, and what it has of dy, a and b is not read.


COUNT = 13
"""The arguments of an op."""
_FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the gradient of `grouped_mm` needs: for relu the result, else the value is computed again."""
    _keep(ctx, inputs, output if inputs[5] == "relu" else None)


def keep_aux(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what the gradient of `grouped_mm_aux` needs; its second result is only for the gradient."""
    ctx.mark_non_differentiable(output[1])
    _keep(ctx, inputs, output[1])


def _keep(ctx: Any, inputs: tuple[Any, ...], before: Tensor | None) -> None:
    a, b, offs, sizes, bias, activation, _, expected, out_dtype, scale_a, scale_b, *_ = inputs
    if not (scale_a is scale_b is None) and any(ctx.needs_input_grad):
        raise RequestError(
            "grouped_mm: found factors and a tensor that requires grad; expected only a forward pass: multiply by the "
            "factors in torch, or call under `torch.no_grad()`"
        )
    if a.dtype in _FLOAT8 and any(ctx.needs_input_grad[:2]):
        raise RequestError(
            f"grouped_mm: found operands of {a.dtype} that require gradients; expected only a forward pass: their "
            "gradients are products along the other modes, which read transposed copies with their own scales"
        )
    ctx.save_for_backward(a, b, offs, sizes, bias, before if activation is not None else None)
    ctx.activation, ctx.expected, ctx.out_dtype = activation, expected, out_dtype


def backward(ctx: Any, grad: Tensor, _: Tensor | None = None) -> tuple[Tensor | None, ...]:
    """Return gradients of a, b and bias, in argument order. Raises RequestError if recorded."""
    refuse_to_be_recorded()
    a, b, offs, sizes, bias, before = ctx.saved_tensors
    need_a, need_b, _, _, need_bias = [*ctx.needs_input_grad, *[False] * COUNT][:5]
    grad = wide(grad)
    if ctx.activation is not None:
        if before is None:
            before = torch.ops.cutegen.grouped_mm(a, b, offs, sizes, bias, None, False, ctx.expected, ctx.out_dtype)
        grad = through(ctx.activation, grad, before)
    narrow = grad.to(a.dtype)
    of_a = _product(narrow, b.mT, offs, sizes, a, ctx.expected) if need_a else None
    of_b = None
    if need_b and sizes is None:
        of_b = _product(a.mT, narrow, offs, None, b, ctx.expected)
    elif need_b:
        rows = in_a_group(offs, sizes, a.shape[1])[..., None]
        of_b = torch.ops.cutegen.matmul(a.where(rows, 0).mT, narrow.where(rows, 0))
    of_bias = _of_bias(grad, a, b, offs, sizes, bias, ctx.expected) if need_bias else None
    return (of_a, of_b, None, None, of_bias, *[None] * (COUNT - 5))[: len(ctx.needs_input_grad)]


def _product(
    x: Tensor, y: Tensor, offs: Tensor | None, sizes: Tensor | None, like: Tensor, expected: int | None
) -> Tensor:
    """Return the product in the layout of `like`, so that its gradient needs no copy."""
    terms = (offs, sizes, None, None, False, expected, None if like.dtype == x.dtype else like.dtype)
    if sizes is None and like.stride(-2) == 1 and like.stride(-1) != 1:
        transposed: Tensor = torch.ops.cutegen.grouped_mm(y.mT, x.mT, *terms)
        return transposed.mT
    found: Tensor = torch.ops.cutegen.grouped_mm(x, y, *terms)
    return found


def in_a_group(offs: Tensor | None, sizes: Tensor | None, room: int) -> Tensor:
    """Return (room,) of packed groups, or (G, room) of padded ones: whether a group has the row, or the column."""
    given = offs if sizes is None else sizes[:, None]
    assert given is not None
    at = torch.arange(room, device=given.device)
    if sizes is not None:
        return at < given
    return at < (given.amax() if given.shape[0] else given.new_zeros(()))  # an end is not below the one before it


def _of_bias(
    grad: Tensor, a: Tensor, b: Tensor, offs: Tensor | None, sizes: Tensor | None, bias: Tensor, expected: int | None
) -> Tensor:
    """Return the gradient of a bias: sums over the rows of each group, or of all."""
    if sizes is not None:
        of_groups = grad.where(in_a_group(offs, sizes, a.shape[1])[..., None], 0).sum(1, dtype=torch.float32)
    elif a.dim() == 2 and b.dim() == 3:
        # Sums of a group's rows are a product with ones, along K: it reads no row that no group has.
        narrow = grad.to(a.dtype)
        ones = narrow.new_ones((grad.shape[0], 1)).mT
        of_groups = torch.ops.cutegen.grouped_mm(
            ones, narrow, offs, None, None, None, False, expected, torch.float32
        ).squeeze(1)
    elif a.dim() == 2:
        of_groups = grad.sum(1, dtype=torch.float32)
    else:
        columns = in_a_group(offs, sizes, grad.shape[-1])
        return grad.sum(0, dtype=torch.float32).where(columns, 0).to(bias.dtype)
    return (of_groups if bias.dim() == 2 else of_groups.sum(0)).to(bias.dtype)


# `cutegen.grouped_mm` of torch tensors: as ops that torch supports, with gradients by the other forms.
#
# grouped_mm       -> the result
# grouped_mm_aux   -> the result, and the value before the activation, for the gradient
# grouped_mm_out   writes the result to `out`
# grouped_mm_quantized, grouped_mm_quantized_out    values of 8 bits, and their factors


TENSORS = ("a", "b", "bias", "scale_a", "scale_b", "scale_m", "scale_n", "offs", "sizes", "out", "scale_c")
"""The tensors of a call, by name."""
_ARGUMENTS = (
    "Tensor a, Tensor b, Tensor? offs=None, Tensor? sizes=None, Tensor? bias=None, str? activation=None, "
    "bool keep=False, int? expected=None, ScalarType? out_dtype=None, Tensor? scale_a=None, Tensor? scale_b=None, "
    "Tensor? scale_m=None, Tensor? scale_n=None"
)
_KEYWORDS = {
    "grouped_mm_out": ", *, Tensor(a!) out",
    "grouped_mm_quantized": ", *, str quantize",
    "grouped_mm_quantized_out": ", *, str quantize, Tensor(a!) out, Tensor(b!) scale_c",
}
"""Keywords of the ops that have some."""
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_PADDED_DIMS = 3
MOST_KEPT = 1024
"""Tensors of sizes that are kept for calls without."""
_every_row: dict[tuple[torch.device, int, int, int], Tensor] = {}


class GroupedCall(NamedTuple):
    """The arguments of a call of groups, in the order of the ops; `aux` requests the value before the activation.

    `scale_m` and `scale_n` are factors of rows and columns beside those of blocks. With `quantize` the result has
    factors, which are written to `scale_c` if that is given, as the result to `out`.
    """

    a: Tensor
    b: Tensor
    offs: Tensor | None = None
    sizes: Tensor | None = None
    bias: Tensor | None = None
    activation: str | None = None
    keep: bool = False
    expected: int | None = None
    out_dtype: torch.dtype | str | None = None
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None
    scale_m: Tensor | None = None
    scale_n: Tensor | None = None
    out: Tensor | None = None
    aux: bool = False
    quantize: str | None = None
    scale_c: Tensor | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The given tensors, by name."""
        return {name: x for name in TENSORS if (x := getattr(self, name)) is not None}

    @property
    def ends(self) -> Tensor | None:
        """The ends, or the sizes."""
        return self.sizes if self.offs is None else self.offs

    @property
    def placed(self) -> dict[str, Tensor]:
        """The tensors by the names of their placements."""
        return {ENDS if name in ("offs", "sizes") else name: x for name, x in self.tensors.items()}

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that kernel and launch depend on, of the addresses only their alignment."""
        found: list[object] = [None if x is None else attributes(x) for x in (*self[:5], *self[9:14], self.scale_c)]
        terms = self.activation, self.keep, self.expected, self.out_dtype, self.aux, self.quantize
        return "groups", *found, *terms, tf32_allowed()

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers that a kernel takes: none."""
        return {}

    @property
    def terms(self) -> grouped.GroupedTerms:
        """The terms beside its tensors. Raises RequestError."""
        if not is_gated(self.activation):
            check_activation(self.activation, "grouped_mm")
        return grouped.GroupedTerms(
            self.activation, self.keep, self.expected, self.aux, factors_of(self.quantize, "grouped_mm")
        )

    @property
    def asked_dtype(self) -> str | None:
        """The element type of a quantized result, or of `out_dtype`, if it is given."""
        if self.quantize is not None:
            return ELEMENT
        return None if self.out_dtype is None else dtype_name(self.out_dtype)

    @property
    def product(self) -> tuple[grouped.GroupedProduct, torch.dtype]:
        """The product and the result's type, as its tensors fit together. Raises OperandError, RequestError."""
        forms = {name: eager.form_of(x) for name, x in self.tensors.items()}  # which need no memory
        product, element = grouped.result_of(forms, self.asked_dtype, gated_of(self.terms.activation))
        if self.quantize is not None:
            grouped.check_quantized(product)
            grouped.place_factors_of_groups(forms.get(RESULT_FACTORS), forms["a"], product)
        return product, dtype_of(element)

    @property
    def in_atoms(self) -> bool:
        """True if blocks of A and B have factors of 8 bits."""
        return any(x is not None and x.dtype in TYPES for x in (self.scale_a, self.scale_b))

    @property
    def has_blocks(self) -> bool:
        """True if blocks of A and B have factors. Raises OperandError."""
        return self.scale_a is not None and bool(
            grouped.blocks_of_groups({n: eager.form_of(x) for n, x in self.tensors.items()})
        )

    @property
    def wants_grad(self) -> bool:
        """True if autograd must record the call."""
        return torch.is_grad_enabled() and any(x.requires_grad for x in self.tensors.values())

    @property
    def of_op(self) -> tuple[Any, ...]:
        """The arguments of the op. Raises RequestError for an invalid `out_dtype`."""
        return (*self[:8], torch_type(self.out_dtype, "grouped_mm"), *self[9:13])

    @property
    def is_direct(self) -> bool:
        """True if nobody but the kernel must see the call: no tracer, no subclass, no autocast, no other device."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or not is_undisturbed():
            return False
        plain = all(type(x) in _PLAIN for x in self.tensors.values())
        return plain and self.a.device.type in ("cuda", "cpu") and not torch.is_autocast_enabled(self.a.device.type)


Asked = tuple[tuple[Tensor, ...], tuple[object, ...]]
"""The tensors of a call, A and B first, and its terms, by which guards find it again."""


def quick(asked: Asked, beside: Mapping[str, Tensor | None], out: Tensor | None) -> Tensor | None:
    """Return the result of a call if such a call was made before with such tensors; else None.

    `beside` are those beside A, B and the result, by the names of their placements.

    Raises OperandError for an `out` that shares memory with another operand.
    """
    (a, b, *_), _ = asked
    if (known := lookup(*asked)) is None:
        return None
    found: Tensor | None = launch_again(known.call, a, b, out, [beside[name] for name in known.names])
    if out is not None and found is not None:
        count_write(out)
    return found


def are_padded(a: Any, b: Any) -> bool:
    """Return whether both are tensors with a matrix for each group."""
    return isinstance(a, Tensor) and isinstance(b, Tensor) and a.dim() == b.dim() == _PADDED_DIMS


def _new_sizes(a: Tensor) -> Tensor:
    return torch.full((a.shape[0],), a.shape[1], dtype=torch.int32, device=a.device)


def every_row(a: Tensor) -> Tensor:
    """Return the sizes of groups that have all rows of A: one tensor for each stream, number of groups and rows.

    It is filled on the stream that reads it. Once so many are kept others are new at each call: a captured graph may
    still read any of them. Nothing is kept of what a graph fills, or of tensors that others must see.
    """
    on_gpu = a.device.type == "cuda"
    if torch.compiler.is_compiling() or type(a) not in _PLAIN or not is_undisturbed():
        return _new_sizes(a)
    if on_gpu and torch.cuda.is_current_stream_capturing():
        return _new_sizes(a)
    stream = torch.cuda.current_stream(a.device).cuda_stream if on_gpu else 0
    key = a.device, stream, a.shape[0], a.shape[1]
    if (kept := _every_row.get(key)) is not None:
        return kept
    with torch.inference_mode(mode=False):
        made = _new_sizes(a)
    if len(_every_row) < MOST_KEPT:
        _every_row[key] = made
    return made


def grouped_mm(call: GroupedCall, asked: Asked | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """Serve a call: at once, or through torch's dispatcher if others must see it. `asked` finds it again."""
    if call.quantize is not None:
        return _quantized(call)
    if call.is_direct and not call.wants_grad:
        result = compute(call)[0]
        if asked is not None:
            keep_guards(call, result, *asked, None)
        return result
    gradients.refuse_function_transforms("grouped_mm")
    gradients.refuse_tangents(**call.tensors)
    if not torch.compiler.is_compiling():
        register_flops(of_groups=True)
    if call.out is not None:
        refuse_out_with_grad(call.wants_grad)
        torch.ops.cutegen.grouped_mm_out(*call.of_op, out=call.out)
        return call.out
    if call.wants_grad and call.activation is not None and call.activation != "relu":
        recorded: Tensor = torch.ops.cutegen.grouped_mm_aux(*call.of_op)[0]
        return recorded
    made: Tensor = torch.ops.cutegen.grouped_mm(*call.of_op)
    return made


def _quantized(call: GroupedCall) -> tuple[Tensor, Tensor]:
    """Serve a call whose result is quantized: its values and their factors. No gradients pass."""
    gradients.refuse_function_transforms("grouped_mm")
    with torch.no_grad():
        if call.is_direct:
            values, factors = compute(call)
            assert factors is not None
            return values, factors
        if call.out is None or call.scale_c is None:
            made: tuple[Tensor, Tensor] = torch.ops.cutegen.grouped_mm_quantized(*call.of_op, quantize=call.quantize)
            return made
        written = {"out": call.out, RESULT_FACTORS: call.scale_c}
        torch.ops.cutegen.grouped_mm_quantized_out(*call.of_op, quantize=call.quantize, **written)
        return call.out, call.scale_c


def compute(call: GroupedCall) -> tuple[Tensor, Tensor | None]:
    """Return the result, and the value before the activation if requested, or the factors of a quantized result.

    `out` is the result if given, and `scale_c` its factors.

    Raises OperandError, RequestError, and on a GPU the errors of finding and launching a kernel.
    """
    if call.a.device.type == "cpu" and settings.cpu_tensors == "torch":
        return _by_torch(call)
    if (sums := _of_kernel(call)) is not call:
        return _apart(call, sums)
    if call.quantize is None:
        return call_cache.replay(call) or _of_one_kernel(call)
    if (factors := call.scale_c) is None:
        factors = eager.empty_factors(grouped.factors_of_groups(call.product[0]), call.a)
        call = call._replace(scale_c=factors)
    else:
        torch.autograd.graph.increment_version(factors)
    if (found := call_cache.replay(call)) is None:
        resolved, wide = resolved_groups(call), _unquantized(call, torch.float32)
        if not (resolved.empty or providers.has_kernel(resolved.request)):
            return _apart(call, wide)
        found = eager.computed(call, resolved, lambda *_: _apart(call, wide))
    return found[0], factors if found[1] is None else found[1]


def _of_one_kernel(call: GroupedCall) -> tuple[Tensor, Tensor | None]:
    """Return the result of a call that a kernel serves, or its sums and their activation of pairs apart, if none does.

    Raises the errors of finding and launching a kernel.
    """
    resolved = resolved_groups(call)
    if not is_gated(call.activation):
        return eager.computed(call, resolved, _of_torch)
    sums = _unquantized(call._replace(activation=None), torch.float32)
    if not (resolved.empty or providers.has_kernel(resolved.request)):
        return _apart(call, sums)
    return eager.computed(call, resolved, lambda *_: _apart(call, sums))


def _of_kernel(call: GroupedCall, arch: str | None = None) -> GroupedCall:
    """Return the call that a kernel serves: without what torch computes from its sums in f32.

    That is the quantization of a result where kernels have none, and an activation of pairs for parts of K, with blocks
    that have columns of both members, and if the sums are stored: then they are in the result's type.
    """
    joins, quantizes = _joins_pairs(call, arch), call.quantize is None or _has_quantization(call, arch)
    if joins and quantizes:
        return call
    dtype = call.product[1] if call.aux else torch.float32
    return _unquantized(call._replace(activation=call.activation if joins else None), dtype)


def _unquantized(call: GroupedCall, dtype: torch.dtype) -> GroupedCall:
    """Return the call for its sums in memory of its own."""
    return call._replace(out=None, out_dtype=dtype, aux=False, quantize=None, scale_c=None)


def _joins_pairs(call: GroupedCall, arch: str | None) -> bool:
    """Return whether a kernel has all of the activation, also one of pairs."""
    if (gated := gated_of(call.activation)) is None:
        return True
    if call.aux or call.b.dim() != 3 or not eager.takes_pairs(call, arch):
        return False
    scales = ("a", "b", "scale_a", "scale_b")
    given = {name: eager.form_at(x, name) for name, x in call.tensors.items() if name in scales}
    return call.scale_a is None or grouped.joins_pairs(given, gated, eager.target_of_pairs(call, arch))


def _has_quantization(call: GroupedCall, arch: str | None) -> bool:
    target = call_target(call.a.device, least=LEAST_OF_QUANTIZED, arch=arch).target
    return has_kernel(target, dtype_name(call.a.dtype))


def _apart(call: GroupedCall, sums: GroupedCall) -> tuple[Tensor, Tensor | None]:
    """Compute the sums by a kernel, and by torch their activation of pairs and their quantization."""
    product, element = call.product
    with torch.no_grad():
        before, _ = compute(sums)
        found = gradients.wide(before)
        if (gated := gated_of(call.activation)) is not None and sums.activation is None:
            found = activated(gated, found)
        if call.quantize is not None:
            return _quantized_apart(call, product, found)
        found = rounded(found, element)
    if call.out is not None:
        if call.b.dim() == 3:  # what no group has stays
            inside = in_a_group(call.offs, call.sizes, call.a.shape[-2])
            found = found.where(inside[..., None], call.out)
        found = call.out.copy_(found)
    return found, before if call.aux else None


def _quantized_apart(call: GroupedCall, product: grouped.GroupedProduct, wide: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and factors of a result in f32; rows of no group are 0 in both, or stay."""
    values, factors = eager.quantized_as(call.quantize, wide, grouped.factors_of_groups(product))
    inside = in_a_group(call.offs, call.sizes, call.a.shape[-2])[..., None]
    if call.out is None or call.scale_c is None:
        return values, factors if call.keep else factors.masked_fill_(~inside, 0.0)
    values = values.view(torch.uint8).where(inside, call.out.view(torch.uint8)).view(values.dtype)  # has no `where`
    return eager.handed(call, values, factors.where(inside, call.scale_c))


def resolved_groups(call: GroupedCall, arch: str | None = None, rows: int | None = None) -> Resolved:
    """Return the request of a call, optionally on the target `arch`, and for an `a` with so many `rows`.

    Raises OperandError, RequestError.
    """
    call = _of_kernel(call, arch)
    with torch.no_grad():
        given = {name: eager.form_at(x, grouped.name_in_call(name)) for name, x in call.tensors.items()}
    least = "sm_89" if call.a.dtype.itemsize == 1 and call.a.is_floating_point() else "sm_80"
    if is_gated(call.activation) or call.quantize is not None:
        least = LEAST_OF_PAIRS
    if call.has_blocks:
        least = LEAST_TARGET
    needs = None
    if call.in_atoms:
        least, needs = LEAST_OF_ATOMS, Instruction.TCGEN05
    where = call_target(call.a.device, least=least, arch=arch, needs=needs)
    return grouped.resolve_groups(with_rows(given, rows), call.terms, where, call.asked_dtype)


def _by_torch(call: GroupedCall) -> tuple[Tensor, Tensor | None]:
    """Compute on the CPU with torch, after the same checks."""
    resolved = resolved_groups(call)
    if call.out is not None and _of_kernel(call) is call and not (resolved.empty or resolved.out_copied):
        read = {name: x for name, x in call.tensors.items() if name not in {"out", *resolved.copies}}
        eager.check_apart(call.out, {grouped.name_in_call(name): x for name, x in read.items()})
    return _of_torch(call, resolved)


def _of_torch(call: GroupedCall, resolved: Resolved) -> tuple[Tensor, Tensor | None]:
    """Compute a resolved call with torch, group by group, on the device of its tensors; the host reads the ends.

    Raises RequestError while a CUDA graph is captured, which cannot wait for them.
    """
    if call.a.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RequestError(
            f"grouped_mm: found a CUDA graph's capture of {resolved.request.name}, which torch computes by group, "
            "since no family that has run on hardware has a kernel for it; expected a call outside of the capture"
        )
    product, dtype = call.product
    if call.quantize is not None:
        with torch.no_grad():
            asked = call._replace(quantize=None, scale_c=None, out=None, out_dtype=torch.float32)
            wide, _ = _of_torch(asked, resolved)
            return _quantized_apart(call, product, wide)
    gated = gated_of(call.activation)
    blocks = grouped.blocks_of_groups({name: eager.form_of(x) for name, x in call.tensors.items()})
    if call.in_atoms:
        assert call.scale_a is not None
        assert call.scale_b is not None
        of_k = product.groups.of == "k"
        a = scaled_by_groups("scale_a", call.a, call.scale_a, call.offs, parts_of_k=of_k)
        b = scaled_by_groups("scale_b", call.b.mT, call.scale_b, call.offs, parts_of_k=of_k).mT
        call = call._replace(a=a, b=b, scale_a=call.scale_m, scale_b=call.scale_n, scale_m=None, scale_n=None)
        blocks = {}
    elif blocks:
        assert call.scale_a is not None
        assert call.scale_b is not None
        a = scaled(call.a, call.scale_a, blocks["scale_a"])
        call = call._replace(a=a, b=scaled(call.b, call.scale_b, blocks["scale_b"][::-1]))
    out = call.a.new_zeros(product.result, dtype=dtype) if call.out is None else call.out.clone()  # may be read, too
    aux = call.a.new_zeros((*product.result[:-1], product.n), dtype=dtype) if call.aux else None
    with torch.no_grad():
        for group, a, b, at in parts(call):
            x = multiply(a, b)
            if not blocks:
                x = _times_scales(call, group, at, x)
            if call.bias is not None:
                x = x + _bias_of(call, group, at).to(torch.float32)
            if aux is not None:
                aux[at] = rounded(x, dtype)
            if gated is not None:
                x = activated(gated, x)
            elif call.activation is not None:
                x = ACTIVATIONS[call.activation](x)
            out[at] = rounded(x, dtype)
        return out if call.out is None else call.out.copy_(out), aux


def parts(call: GroupedCall) -> Iterator[tuple[int, Tensor, Tensor, Any]]:
    """Yield each group with its part of A and of B, and its place in the result, on the host."""
    product = grouped.product_of_groups({name: eager.form_of(x) for name, x in call.tensors.items()})
    assert call.ends is not None
    given = [int(x) for x in call.ends.tolist()]
    problem = ProblemShape(product.m, product.n, product.k, groups=product.count)
    for group, part in enumerate(product.groups.products(given, problem)):
        m, n, k = (slice(each.start, each.stop) for each in (part.m, part.n, part.k))
        a = (call.a if call.a.dim() == 2 else call.a[group])[m, k]
        b = (call.b if call.b.dim() == 2 else call.b[group])[k, n]
        yield group, a, b, (m, n) if len(product.result) == 2 else (group, m, n)


def _times_scales(call: GroupedCall, group: int, at: Any, x: Tensor) -> Tensor:
    """Return sums times the factors of their rows and columns."""
    for scale, part, dim in ((call.scale_a, at[-2], -1), (call.scale_b, at[-1], -2)):
        if scale is not None:
            mine = scale[group] if scale.dim() == 2 else scale
            mine = mine if mine.numel() == 1 else mine[part]
            x = x.to(torch.float32) * mine.to(torch.float32).unsqueeze(dim)
    return x


def _bias_of(call: GroupedCall, group: int, at: Any) -> Tensor:
    assert call.bias is not None
    return call.bias[group] if call.bias.dim() == 2 else call.bias[at[-1]]


def _grouped_mm(*arguments: Any) -> Tensor:
    call = GroupedCall(*arguments)
    beside = {ENDS: call.ends, **{name: getattr(call, name) for name in ("bias", *SCALES, *SECOND.values())}}
    tensors = (call.a, call.b, *[x for x in beside.values() if x is not None])
    asked = tensors, ("grouped_mm", call.offs is None, *[x is None for x in beside.values()], *call[5:9])
    if (found := quick(asked, beside, None)) is not None:
        return found
    result = compute(call)[0]
    keep_guards(call, result, *asked, None)
    return result


def _grouped_mm_aux(*arguments: Any) -> tuple[Tensor, Tensor]:
    out, aux = compute(GroupedCall(*arguments)._replace(aux=True))
    assert aux is not None
    return out, aux


def _grouped_mm_out(*arguments: Any, out: Tensor) -> None:
    call = GroupedCall(*arguments)._replace(out=out)
    refuse_out_with_grad(call.wants_grad)
    compute(call)


def _grouped_mm_quantized(*arguments: Any, quantize: str) -> tuple[Tensor, Tensor]:
    values, factors = compute(GroupedCall(*arguments)._replace(quantize=quantize))
    assert factors is not None
    return values, factors


def _grouped_mm_quantized_out(*arguments: Any, quantize: str, out: Tensor, scale_c: Tensor) -> None:
    compute(GroupedCall(*arguments)._replace(quantize=quantize, out=out, scale_c=scale_c))


def _fake(*arguments: Any, out: Tensor | None = None) -> Tensor:
    """Return an empty result of the right shape and type, on the arguments' device. Raises like a real call."""
    call = GroupedCall(*arguments)._replace(out=out)
    product, element = call.product
    return call.a.new_empty(product.result, dtype=element)


def _fake_aux(*arguments: Any) -> tuple[Tensor, Tensor]:
    return _fake(*arguments), _fake(*GroupedCall(*arguments)._replace(activation=None).of_op)


def _fake_out(*arguments: Any, out: Tensor) -> None:
    _fake(*arguments, out=out)


def _fake_quantized(*arguments: Any, quantize: str, **out: Tensor) -> tuple[Tensor, Tensor]:
    call = GroupedCall(*arguments)._replace(quantize=quantize, **out)
    product, element = call.product
    factors = eager.empty_factors(grouped.factors_of_groups(product), call.a)
    return call.a.new_empty(product.result, dtype=element), factors


def _fake_quantized_out(*arguments: Any, quantize: str, **out: Tensor) -> None:
    _fake_quantized(*arguments, quantize=quantize, **out)


def _define() -> None:
    for name, returns, impl, fake in (
        ("grouped_mm", "Tensor", _grouped_mm, _fake),
        ("grouped_mm_aux", "(Tensor, Tensor)", _grouped_mm_aux, _fake_aux),
        ("grouped_mm_out", "()", _grouped_mm_out, _fake_out),
        ("grouped_mm_quantized", "(Tensor, Tensor)", _grouped_mm_quantized, _fake_quantized),
        ("grouped_mm_quantized_out", "()", _grouped_mm_quantized_out, _fake_quantized_out),
    ):
        out = _KEYWORDS.get(name, "")
        library.define(f"{name}({_ARGUMENTS}{out}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
        op, whole = getattr(torch.ops.cutegen, name), f"{NAMESPACE}::{name}"
        for device in ("CPU", "CUDA"):
            library.impl(name, impl, device)
            library.impl(name, autocast(op, device.lower()), f"Autocast{device}")
        torch.library.register_fake(whole, fake, lib=library)
    for name, setup in (("grouped_mm", keep), ("grouped_mm_aux", keep_aux)):
        torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup, lib=library)
    register_flops(of_groups=True)


_define()

__all__ = ["GroupedCall", "activation_name", "grouped_mm", "quick", "resolved_groups", "vectors"]
