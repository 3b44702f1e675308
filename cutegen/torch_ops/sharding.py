"""Shards a call with DTensors: by rows, by columns, by K, or by the batch, like torch's own products.

An activation needs complete sums, so K is not sharded with one, nor for results that saturate or round to integers.
Columns are not sharded if they are pairs, whose members may be on two devices.
A bias, a residual and c are added once, as partial sums themselves.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from cutegen.dispatch.formula import is_gated

_DTENSORS = "torch.distributed.tensor"
Placements = tuple[list[Any], list[Any]]
"""Placements of the results and of the arguments: None for a value that is not a tensor."""
_ACTIVATION = 3
"""Index of the first argument that is not a tensor."""


def register_sharding() -> None:
    """Register the ops with DTensor, if it has been imported."""
    if _DTENSORS in sys.modules:
        _register()


@cache
def _register() -> None:
    import torch
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.experimental import register_sharding

    infos = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    for name, results in (("matmul", 1), ("matmul_aux", 2)):
        op = getattr(torch.ops.cutegen, name).default
        register_sharding(op)(lambda *arguments, results=results: list(_shardings(results, *arguments)))
        # DTensor caches shardings by arguments from this one on, and would serve gelu with those of alpha alone.
        infos[op] = replace(infos[op], static_argnum=_ACTIVATION)


def _shardings(results: int, *arguments: Any) -> Iterator[Placements]:
    from torch.distributed.tensor import Partial, Replicate, Shard

    given: list[Any] = [*arguments, *[None] * 11]
    a, b, bias, activation, residual, alpha, _, c, scale_a, scale_b, out_dtype, *_ = given
    whole = Replicate()

    def sharding(out: Any, of_a: Any, of_b: Any, of_bias: Any, like_out: Any) -> Placements:
        placed = {0: of_a, 1: of_b, 2: of_bias, 4: like_out, 7: like_out, 8: whole, 9: whole}
        of_arguments = [
            placed[at] if at in placed and value is not None else None for at, value in enumerate(arguments)
        ]
        return [out] * results, of_arguments

    yield sharding(whole, whole, whole, whole, whole)
    if a.ndim < 2 or b.ndim < 2 or scale_a is not None or scale_b is not None:
        return
    rank = max(a.ndim, b.ndim)
    if any(x is not None and x.ndim != rank for x in (residual, c)):
        return
    rows, columns = Shard(rank - 2), Shard(rank - 1)
    if a.ndim == rank:
        yield sharding(rows, Shard(a.ndim - 2), whole, whole, rows)
    if (b.ndim == rank or b.ndim == 2) and not is_gated(activation):
        yield sharding(columns, whole, Shard(b.ndim - 1), Shard(0), columns)
    if activation is None and _adds_up(a, alpha, (bias, residual, c), out_dtype):
        yield sharding(Partial(), Shard(a.ndim - 1), Shard(b.ndim - 2), Partial(), Partial())
    for at in range(rank - 2):
        if b.ndim == 2:
            yield sharding(Shard(at), Shard(at), whole, whole, Shard(at))
        elif a.ndim == b.ndim and a.shape[at] == b.shape[at]:
            yield sharding(Shard(at), Shard(at), Shard(at), whole, Shard(at))


def _adds_up(a: Any, alpha: float | None, added: tuple[Any, ...], out_dtype: Any) -> bool:
    """Return whether results of parts of K can be added as stored: floats, or exact sums of integers.

    8-bit floats and integers saturate, and integers of scaled sums are rounded. Partial terms are divided by the number
    of parts, so they are floats as well.
    """
    import torch

    wide = (torch.float16, torch.bfloat16, torch.float32)
    terms = [x for x in added if x is not None]
    integers = not a.tensor_meta.dtype.is_floating_point
    if integers and out_dtype in (None, torch.int32):
        return alpha is None and not terms
    return (out_dtype is None or out_dtype in wide) and all(x.tensor_meta.dtype in wide for x in terms)
