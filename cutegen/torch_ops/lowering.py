"""Inductor's call of cutegen's product: an external kernel that writes into memory of Inductor's, like `aten.mm`.

Inductor calls an op that it does not know through the dispatcher, which passes all arguments to Python twice, once for
autograd: that costs several times what the call itself does. Its result is memory of the op, of which the kernels that
read it do not know that it is aligned. The functions that a program calls instead are in `cutegen.torch_ops.compiled`.
"""

import sys
from collections.abc import Callable
from typing import Any

from cutegen.contract.launch import OPERANDS
from cutegen.torch_ops.call import Call

_IMPORT = "import cutegen.torch_ops.compiled as cutegen_compiled"
_USED = ("register_lowering", "add_layout_constraint", "fallback_handler", "constrain_to_fx_strides")
_lowered: set[Any] = set()


def lower_in_inductor(op: Any) -> None:
    """Let Inductor call `op`, `torch.ops.cutegen.matmul.default`, without the dispatcher, once Inductor is imported.

    With a torch whose Inductor lacks what this uses, which is not public, the op stays one that Inductor does not know.
    """
    lowering = sys.modules.get("torch._inductor.lowering")
    if op in _lowered or not all(hasattr(lowering, name) for name in _USED):
        return
    _lowered.add(op)
    assert lowering is not None
    made = _lowering(op, lowering.fallback_handler(op, add_to_fallback_set=False))
    lowering.register_lowering(op, type_promotion_kind=None)(made)
    lowering.add_layout_constraint(op, lowering.constrain_to_fx_strides)  # the layouts that the kernel was chosen for


def _lowering(op: Any, fallback: Callable[..., Any]) -> Callable[..., Any]:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    class CompiledCall(ir.ExternKernelOut):  # type: ignore[misc]
        """A call of a function of `cutegen.torch_ops.compiled`."""

        def codegen(self, wrapper: Any) -> None:
            wrapper.add_import_once(_IMPORT)
            super().codegen(wrapper)

    def lowered(*arguments: Any, **named: Any) -> Any:
        if V.graph.cpp_wrapper:  # it calls no Python but ops
            return fallback(*arguments, **named)
        schema = zip(op._schema.arguments, arguments, strict=False)
        call = Call(**{each.name: value for each, value in schema}, **named)
        function, tensors, constants = _function_of(call)
        result = V.graph.current_node.meta["val"]
        layout = ir.FixedLayout(result.device, result.dtype, ir.convert_shape_to_inductor(result.shape))
        return ir.TensorBox.create(
            CompiledCall(
                layout,
                [ir.ExternKernel.realize_input(x) for x in tensors],
                constants,
                python_kernel_name=f"cutegen_compiled.{function}",
            )
        )

    return lowered


def _function_of(call: Call) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
    """Return the function for a call, its tensors, which are Inductor's, and its other arguments."""
    matrices = (call.a, call.b)
    if call.has_more:
        beside = {name: x for name, x in call.tensors.items() if name not in OPERANDS}
        constants = (tuple(beside), call.activation, call.alpha, call.beta, call.out_dtype)
        return "with_terms", (*matrices, *beside.values()), constants
    if call.bias is None:
        return "plain", matrices, (call.activation,)
    return "with_bias", (*matrices, call.bias), (call.activation,)
