"""Calls in programs that Inductor compiled: they write into memory that Inductor planned, without torch's dispatcher.

The programs that torch keeps on disk import this module and call `plain`, `with_bias` and `with_terms` as
`cutegen.torch_ops.lowering` wrote: what these take stays as it is. A function that takes something else needs another
name.
"""

from typing import Any

import torch
from torch import Tensor

from cutegen.torch_ops.call import Call
from cutegen.torch_ops.call_cache import is_undisturbed, launch_again, lookup, memoize, quick_terms
from cutegen.torch_ops.eager import compute
from cutegen.torch_ops.flops import register_flops
from cutegen.torch_ops.ops import OPS


def plain(a: Tensor, b: Tensor, activation: str | None, *, out: Tensor) -> None:
    """Write `activation(a @ b)` to `out`."""
    known = lookup((a, b, out), (activation, True, False, False))
    if known is None or known.graded is not None or launch_again(known.call, a, b, out) is None:
        _first(Call(a, b, activation=activation, out=out))


def with_bias(a: Tensor, b: Tensor, bias: Tensor, activation: str | None, *, out: Tensor) -> None:
    """Write `activation(a @ b + bias)` to `out`."""
    known = lookup((a, b, bias, out), (activation, False, False, False))
    if known is None or known.graded is not None or launch_again(known.call, a, b, out, (bias,)) is None:
        _first(Call(a, b, bias, activation, out=out))


def with_terms(a: Tensor, b: Tensor, *others: Any, out: Tensor) -> None:
    """Write a call to `out`: after further tensors follow their names, then activation, alpha, beta and out_dtype."""
    *tensors, names, activation, alpha, beta, out_dtype = others
    given = dict(zip(names, tensors, strict=True))
    call = Call(a, b, activation=activation, alpha=alpha, beta=beta, out=out, out_dtype=out_dtype, **given)
    if quick_terms(call) is None:
        _first(call)


def _first(call: Call) -> None:
    """Serve a call that is not known yet; through the dispatcher, if something is to see it there."""
    if is_undisturbed():
        memoize(call, compute(call)[0])
    else:
        register_flops()
        with torch.no_grad():  # autograd is done with a compiled program
            OPS.matmul_out(*call.of_op, out=call.out)
