"""The activation after a product in a graph of Inductor, in which it is a chain of simpler ops.

The chain is the one that this version of torch makes: the activation is traced with Inductor's own decompositions, and
the graph is searched for the same ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: torch.relu(x),
    "gelu": lambda x: functional.gelu(x),
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": lambda x: functional.silu(x),
}
"""Functions of one argument, which `make_fx` traces."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The nodes of an activation of a node, in order; the last is its result, and nothing else reads the others."""

    activation: str
    nodes: tuple[fx.Node, ...]


def tail_of(node: fx.Node, dtype: torch.dtype) -> Tail | None:
    """Return the activation that is all that reads `node`, a tensor of this type; None for anything else."""
    for name in ACTIVATIONS:
        nodes = _matched(_traced(name, dtype), node)
        if nodes is not None:
            return Tail(name, nodes)
    return None


@cache
def _traced(activation: str, dtype: torch.dtype) -> fx.Graph:
    """Return the activation as Inductor's graphs have it."""
    from torch._inductor.decomposition import select_decomp_table

    with torch.no_grad():
        made = make_fx(ACTIVATIONS[activation], decomposition_table=select_decomp_table())(
            torch.ones(2, 2, dtype=dtype)
        )
    made.graph.eliminate_dead_code()
    graph: fx.Graph = made.graph
    return graph


def _matched(pattern: fx.Graph, start: fx.Node) -> tuple[fx.Node, ...] | None:
    """Return the nodes after `start` that compute what `pattern` does, if they alone read it and each other."""
    (given,) = (each for each in pattern.nodes if each.op == "placeholder")
    found: dict[fx.Node, fx.Node] = {given: start}
    last: fx.Node | None = None
    for each in pattern.nodes:
        if each.op != "call_function":
            continue
        wanted = fx.map_arg((each.args, each.kwargs), lambda x: found[x])
        (first, *_) = each.all_input_nodes
        last = next((x for x in found[first].users if x.target == each.target and (x.args, x.kwargs) == wanted), None)
        if last is None:
            return None
        found[each] = last
    assert last is not None
    inside = set(found.values()) - {last}
    if any(user not in found.values() for node in inside for user in node.users):
        return None
    return tuple(dict.fromkeys(node for node in found.values() if node is not start))
