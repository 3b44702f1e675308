"""`cutegen.Linear`: torch's Linear, computed by one kernel with its bias and activation."""

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, fx
from torch.nn.parameter import is_lazy

from cutegen.dispatch.formula import check_activation, gated_of, paired
from cutegen.errors import OperandError, RequestError
from cutegen.torch_ops import gradients, ops
from cutegen.torch_ops.activations import activation_name
from cutegen.torch_ops.call import Call
from cutegen.torch_ops.gradients import refuse_tangents
from cutegen.torch_ops.sharding import register_sharding
from cutegen.torch_ops.torch_entry import matmul, quick

# A layer whose kernel adds the weight gradient to an f32 buffer.
#
# beta is 1, and nothing is rounded to the parameters' type between the steps of an accumulation.


def check_main_grad(weight: Tensor) -> None:
    """Reject a `main_grad` to which the weight's gradient cannot be added, before the backward pass does.

    Raises OperandError, RequestError.
    """
    gradients.refuse_function_transforms("Linear with a main_grad")
    if weight._backward_hooks:
        raise OperandError(
            operand="weight",
            found=f"{len(weight._backward_hooks)} gradient hooks and a main_grad",
            expected="one of both: the kernel adds the gradient to main_grad, and a hook does not see it",
            fix="remove the hooks with their handles, or `weight.main_grad = None`",
        )
    main: Any = weight.main_grad
    found = f"a {type(main).__qualname__}"
    if isinstance(main, Tensor):
        if (main.dtype, main.shape, main.device) == (torch.float32, weight.shape, weight.device):
            return
        found = f"{main.dtype}, shape {tuple(main.shape)}, on {main.device}"
    raise OperandError(
        operand="weight.main_grad",
        found=found,
        expected=f"torch.float32, shape {tuple(weight.shape)}, on {weight.device}, like the weight",
        fix="`torch.zeros_like(weight, dtype=torch.float32)`",
    )


class AccumulatingLinear(torch.autograd.Function):  # type: ignore[misc]
    """`activation(x @ weight.T + bias)`, whose backward pass adds the gradient of `weight` to `weight.main_grad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
        """Keep x, the weight if x needs a gradient, and the value before an activation; of autocast's type."""
        ctx.main_grad = weight.main_grad
        if torch.is_autocast_enabled(x.device.type):
            wanted = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(wanted), weight.to(wanted)
        out, before = ops.matmul_before(x, weight.t(), bias, activation)
        ctx.save_for_backward(x, weight if ctx.needs_input_grad[0] else None, before)
        ctx.activation = activation
        ctx.bias_dtype = None if bias is None else bias.dtype
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients of x and of the bias; None for the weight, whose gradient is already added.

        Raises RequestError if they are to be differentiated.
        """
        gradients.refuse_to_be_recorded()
        x, weight, before = ctx.saved_tensors
        if before is not None:
            grad = gradients.through(ctx.activation, grad, before)
        rows = gradients.as_rows(grad).to(x.dtype)
        main = ctx.main_grad
        ops.OPS.matmul_out(rows.t(), gradients.as_rows(x), None, None, None, None, 1.0, main, out=main)
        need_x, _, need_bias, _ = ctx.needs_input_grad
        of_x = ops.OPS.matmul(rows, weight).reshape(x.shape) if need_x else None
        return of_x, None, gradients.sum_of_rows(rows, ctx.bias_dtype) if need_bias else None, None


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """`activation(x @ weight.T + bias)`, a replacement for `torch.nn.Linear` followed by an activation.

    It is a `torch.nn.Linear` with the same parameters, initialization and `state_dict`: code that shards or wraps that
    class works here. `activation`, `pairs` and `first` are as in `cutegen.matmul`: the output of an activation of pairs
    of columns has half of `out_features`.

    If `weight.main_grad` is an f32 tensor of the weight's shape, the backward pass adds the weight's gradient to it in
    the kernel that computes it, and does not touch `weight.grad`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        activation: Any = None,
        pairs: str | int | None = None,
        first: str | None = None,
    ) -> None:
        activation = _checked(activation, pairs, first, out_features)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        register_sharding()

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        *,
        activation: Any = None,
        pairs: str | int | None = None,
        first: str | None = None,
    ) -> Self:
        """Return a layer with the parameters of `linear`, the same tensors; `activation` defaults to that of `linear`.

        The new layer computes what `linear` computes, followed by the activation. A subclass that adds nothing is
        adopted like its base. Hooks of `state_dict` and `load_state_dict` stay with `linear`.

        Raises RequestError for anything else: computed or lazy weights, a forward of its own, hooks of its calls,
        further parameters, buffers or modules.
        """
        _check_adoptable(linear, cls)
        activation = _checked(activation, pairs, first, linear.out_features)
        if activation is None:
            activation = linear.activation if isinstance(linear, Linear) else None
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, "meta")
        made.activation = activation
        made.weight, made.bias = linear.weight, linear.bias
        made.train(linear.training)
        return made

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's output, of the input's type."""
        given, activation = self._parameters, self.activation
        try:
            weight, bias = given["weight"], given["bias"]  # as attributes, nn.Module looks them up in Python
        except KeyError:  # parametrized, or a replica
            weight, bias = self.weight, self.bias
        return linear(input, weight, bias, activation)

    def extra_repr(self) -> str:
        """Return torch's representation with the activation."""
        shown: str = super().extra_repr()
        return shown if self.activation is None else f"{shown}, activation={self.activation!r}"


def _checked(activation: Any, pairs: str | int | None, first: str | None, out_features: int) -> str | None:
    """Return an activation as calls pass it on. Raises RequestError, also for columns that are not all in pairs."""
    found: str | None = paired(activation_name(activation), pairs, first, "Linear")
    if (gated := gated_of(found)) is None:
        check_activation(found, "Linear")
    elif out_features % gated.pairs.multiple:
        expected = f"a multiple of {gated.pairs.multiple}: {gated.pairs}"
        raise RequestError(f"Linear: out_features: found {out_features}; expected {expected}")
    return found


_CALLED = ("__call__", "_call_impl", "forward", "__getattr__", "__getattribute__", "weight", "bias")
"""Attributes that a call of a module looks up: who replaces one of them may compute something else."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_STATE = {"parameter": "_parameters", "buffer": "_buffers", "module": "_modules"}


class Obstacle(NamedTuple):
    """Part of a layer's output or state that a `Linear` with its weight and bias would not have, and the way out."""

    found: str
    fix: str


def obstacle(linear: torch.nn.Linear, cls: type[Linear]) -> Obstacle | None:
    """Return the first reason against a `cls` in the place of `linear`; None if it would be the same layer."""
    for name in ("weight", "bias"):
        if is_lazy(linear._parameters.get(name)):
            return Obstacle(f"{name} has no shape yet", "expected parameters; call the layer once before")
        if name not in linear._parameters:
            return Obstacle(
                f"{name} is computed from others",
                "expected parameters; parametrize the new layer, or have the value for a parameter by "
                f'`torch.nn.utils.parametrize.remove_parametrizations(linear, "{name}")`, or by `prune.remove` or '
                "`remove_weight_norm` if they compute it",
            )
    base = next(each for each in (cls, Linear, torch.nn.Linear) if isinstance(linear, each))
    for name in _CALLED:
        if name in vars(linear) or getattr(type(linear), name, None) is not getattr(base, name, None):
            return Obstacle(
                f"{name} is its own",
                f"expected that of {base.__module__}.{base.__qualname__}: the new layer would compute something else; "
                "merge what it adds into the weight, or adopt the layers inside of it",
            )
    for kind in _HOOKS:
        if hooks := getattr(linear, kind):
            return Obstacle(
                f"{kind} has {len(hooks)}",
                "expected none: the new layer would not run them; remove them with their handles, and register them "
                "on the new layer",
            )
    for kind, name in ((kind, name) for kind, group in _STATE.items() for name in getattr(linear, group)):
        if name not in ("weight", "bias"):
            return Obstacle(
                f"{kind} {name} is its own",
                "expected weight and bias alone: the new layer would drop it from its state; "
                f"`delattr(linear, {name!r})` if nothing reads it",
            )
    return None


def _check_adoptable(linear: Any, cls: type[Linear]) -> None:
    """Reject a module whose output or state a `cls` with its weight and bias would not have. Raises RequestError."""
    whose = f"Linear.from_linear: found a {type(linear).__qualname__}"
    if not isinstance(linear, torch.nn.Linear):
        raise RequestError(f"{whose}; expected a torch.nn.Linear")
    if (why := obstacle(linear, cls)) is not None:
        raise RequestError(f"{whose} whose {why.found}; {why.fix}")


def linear(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """Compute `activation(input @ weight.T + bias)`; the weight's gradient is added to its `main_grad`, if any."""
    accumulates = torch.is_grad_enabled() and weight.requires_grad and getattr(weight, "main_grad", None) is not None
    if accumulates and isinstance(input, Tensor):  # anything else is refused below
        _check(input, weight)
        check_main_grad(weight)
        refuse_tangents(input=input, weight=weight, bias=bias)
        accumulated: Tensor = AccumulatingLinear.apply(input, weight, bias, activation)
        return accumulated
    found = quick(input, weight, bias, activation, None, b_transposed=True)
    if found is None:
        _check(input, weight)
        found = matmul(Call(input, weight.t(), bias, activation), weight)
    return found


def _check(input: Any, weight: Tensor) -> None:
    """Reject an input of another width or type than the weight's in the layer's words: its caller knows no `a` and `b`.

    Raises OperandError. Calls that are traced, or whose tensors are of other classes, are left to `matmul`.
    """
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if traced or type(input) is not Tensor or input.is_nested:
        return
    if input.shape[-1:] != weight.shape[1:]:
        raise OperandError(
            operand="input",
            found=f"shape {tuple(input.shape)}",
            expected=f"(..., {weight.shape[1]}), the layer's in_features",
        )
    kind, bytes_per_element = input.device.type, max(input.dtype.itemsize, weight.dtype.itemsize)
    if kind not in ("cuda", "cpu") or torch.is_autocast_enabled(kind):
        return
    if input.dtype != weight.dtype and bytes_per_element > 1:  # 8-bit types may differ
        raise OperandError(
            operand="input",
            found=f"dtype {input.dtype}",
            expected=f"{weight.dtype} like the layer's weight: types are not promoted",
            fix=f"`input.to({weight.dtype})`, or convert the layer",
        )


fx.wrap("linear")  # one node in `symbolic_trace`, whose leaves are only torch's own layers
