"""The calls of cutegen in a run of a model that computes nothing: on fake tensors, which have no values."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from cutegen.dispatch.resolve import Resolved
from cutegen.errors import CutegenError, RequestError
from cutegen.torch_ops.eager import resolved_tensors
from cutegen.torch_ops.ops import NAMESPACE, call_of

_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


def calls_of(
    model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any], *, arch: str | None, backward: bool
) -> list[Resolved]:
    """Return the calls of cutegen in `model(*inputs, **named)`, and in its backward pass if requested, in order.

    Nothing is computed: a copy of the model without values runs, so that the model itself stays as it is. Gradients are
    recorded as torch's grad mode says, and autocast applies. Raises RequestError for a model whose run depends on
    values, or that cannot be copied, and the errors of the run and of calls.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.compiler.set_stance("force_eager"):
        faked = _copied(model, fake)
        given, known = tree_map_only(Tensor, fake.from_tensor, (list(inputs), dict(named)))
        try:
            with (calls := _Calls(arch)):
                outputs = faked(*given, **known)
                if backward:
                    _go_back(outputs)
        except _NEEDS_VALUES as error:
            raise RequestError(
                f"prepare: the model's run depends on values ({error}); expected one that depends on shapes alone; run "
                "it once with CUTEGEN_RECORD=calls.toml instead, and pack that list"
            ) from error
    return calls.found


class _Calls(TorchDispatchMode):  # type: ignore[misc]
    """Keeps the calls of cutegen's ops."""

    def __init__(self, arch: str | None) -> None:
        super().__init__()
        self.arch = arch
        self.found: list[Resolved] = []

    def __torch_dispatch__(self, op: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        made = op(*given, **(named or {}))  # first, so that it refuses what it refuses
        if op.namespace == NAMESPACE:
            name = op._schema.name.partition("::")[2]
            resolve = _RESOLVERS[name.removesuffix("_aux").removesuffix("_out").removesuffix("_quantized")]
            self.found.append(resolve(op, given, named or {}, self.arch))
        return made


def _resolved(op: Any, given: tuple[Any, ...], named: Mapping[str, Any], arch: str | None) -> Resolved:
    call = call_of(op, given, named)
    return resolved_tensors(call.tensors, call.formula, call.out_dtype, arch)


def _resolved_groups(op: Any, given: tuple[Any, ...], named: Mapping[str, Any], arch: str | None) -> Resolved:
    from cutegen.torch_ops.grouped import GroupedCall, resolved_groups  # defines the ops of groups

    call = GroupedCall(*given, **named)
    return resolved_groups(call._replace(aux=op is torch.ops.cutegen.grouped_mm_aux.default), arch)


_RESOLVERS = {"matmul": _resolved, "grouped_mm": _resolved_groups}
"""Functions from the arguments of an op to the request of its call, by the op's name without its endings."""


def _copied(model: nn.Module, fake: FakeTensorMode) -> nn.Module:
    """Return a copy of the model whose parameters and buffers are fake, shared and tied like the model's."""
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    memo: dict[int, Any] = {}
    for each in (*model.parameters(), *model.buffers()):
        made = memo[id(each)] = fake.from_tensor(each)
        if (main := getattr(each, "main_grad", None)) is not None:
            made.main_grad = fake.from_tensor(main)
    try:
        copied: nn.Module = copy.deepcopy(model, memo)
    except CutegenError:
        raise
    except Exception as error:  # whatever the model has that Python cannot copy
        raise RequestError(
            f"prepare: found a {type(model).__qualname__} that cannot be copied ({type(error).__name__}: {error}); "
            "expected one that can; run it once with CUTEGEN_RECORD=calls.toml instead, and pack that list"
        ) from error
    return copied


def _go_back(outputs: Any) -> None:
    """Run the backward pass from all outputs that have one. Raises RequestError without any."""
    ends = [each for each in tree_leaves(outputs) if isinstance(each, Tensor) and each.requires_grad]
    if not ends:
        raise RequestError(
            "prepare: backward: found no output that requires grad; expected one; call `model.requires_grad_()`, and "
            "not under `torch.no_grad()`"
        )
    torch.autograd.backward(ends, [torch.empty_like(each) for each in ends])
