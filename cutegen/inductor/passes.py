"""The pass over Inductor's graphs: a product, with the activation after it, becomes one call of cutegen's op."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from cutegen.contract.launch import OPERANDS
from cutegen.torch_ops.lowering import lower_in_inductor
from cutegen.torch_ops.ops import OPS

# A product of a graph that `cutegen.matmul` could compute, as plain values.


DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True, slots=True)
class Form:
    """A tensor without values; of dynamic extents, those of the first call."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, x: Tensor) -> Form | None:
        """Return the form of a tensor in a graph; None if an extent is known only when the program runs."""
        extents, strides = hints(x.shape), hints(x.stride())
        return None if extents is None or strides is None else cls(extents, strides, x.dtype, x.device)

    def random(self) -> Tensor:
        """Return a tensor of this form with normal random numbers."""
        elems = 1 + sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True))
        memory = torch.randn(max(elems, 1), device=self.device).to(self.dtype)
        return memory.as_strided(self.shape, self.strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """`activation(alpha * (a @ b) + beta * c + bias)`, of matrices or of batches of them.

    `c` has the result's shape, `bias` one element for each column.
    """

    a: Form
    b: Form
    bias: Form | None = None
    c: Form | None = None
    alpha: float = 1.0
    beta: float = 1.0
    activation: str | None = None

    def __str__(self) -> str:
        rows, columns, k = self.a.shape[-2], self.b.shape[-1], self.a.shape[-1]
        batch = f"{self.a.shape[0]} x " if len(self.a.shape) > 2 else ""
        terms = [name for name in ("bias", "c") if getattr(self, name) is not None]
        said = [str(self.a.dtype).removeprefix("torch."), *terms, *([self.activation] if self.activation else [])]
        return f"{batch}{rows}x{columns}x{k}, {', '.join(said)}"


def hints(extents: Sequence[Any]) -> tuple[int, ...] | None:
    """Return extents as integers: of symbols, the values that they were traced with; None if one has none."""
    found = []
    for each in extents:
        if isinstance(each, int):
            found.append(each)
            continue
        hint = getattr(each.node, "hint", None)
        if hint is None:
            return None
        found.append(int(hint))
    return tuple(found)


# The activation after a product in a graph of Inductor, in which it is a chain of simpler ops.
#
# The chain is the one that this version of torch makes: the activation is traced with Inductor's own decompositions,
# and the graph is searched for the same ops.


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


# The pass over Inductor's graphs: a product, with the activation after it, becomes one call of cutegen's op.


Choose = Callable[[Candidate], bool]
_ATEN = torch.ops.aten
_VIEWS = (_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default)


class MatmulPass(CustomGraphPass):  # type: ignore[misc]
    """Replaces the products that `choose` names; `name` identifies its decisions in torch's cache, None means none."""

    def __init__(self, choose: Choose, name: str | None) -> None:
        self.choose, self.name = choose, name
        self.replaced: list[Candidate] = []
        """Products that were replaced, in all graphs."""

    def __call__(self, graph: fx.Graph) -> None:
        """Replace products in place; none in a program for C++, which has no Python to call."""
        if config.cpp_wrapper:
            return
        lower_in_inductor(OPS.matmul.default)
        for node in list(graph.nodes):
            if (product := product_of(node)) is not None:
                self._replace(graph, product)
        graph.lint()

    def uuid(self) -> Any:
        """Return what torch's cache of compiled graphs must have in its key; None switches the cache off."""
        return None if self.name is None else f"{_digest()}: {self.name}"

    def _replace(self, graph: fx.Graph, product: Product) -> None:
        view = _only_view(product.node)
        last = view or product.node
        tail = tail_of(last, product.node.meta["val"].dtype)
        for activation in (tail.activation, None) if tail is not None else (None,):
            candidate = replace(product.candidate, activation=activation)
            if self.choose(candidate):
                _rewrite(graph, product, candidate, view, tail if activation is not None else None)
                self.replaced.append(candidate)
                return


@dataclass(frozen=True, slots=True)
class Product:
    """A node that cutegen's op can replace, and the op's tensors by name."""

    node: fx.Node
    tensors: dict[str, fx.Node]
    candidate: Candidate


def product_of(node: fx.Node) -> Product | None:
    """Return the product that a node computes, if cutegen has it."""
    tensors = _tensors(node)
    if tensors is None:
        return None
    values = {name: each.meta.get("val") for name, each in tensors.items()}
    out = node.meta.get("val")
    if not all(isinstance(x, Tensor) for x in (out, *values.values())):
        return None
    if any(x.dtype != out.dtype or x.device != out.device for x in values.values()) or out.dtype not in DTYPES:
        return None
    forms = {name: Form.of(x) for name, x in values.items()}
    of_result = Form.of(out)
    if of_result is None or None in forms.values() or not _is_compact(of_result) or 0 in of_result.shape:
        return None
    numbers = {name: float(node.kwargs.get(name, 1.0)) for name in ("alpha", "beta")} if "c" in forms else {}
    return Product(node, tensors, Candidate(**forms, **numbers))  # type: ignore[arg-type]


def _tensors(node: fx.Node) -> dict[str, fx.Node] | None:
    """Return the operands of one of torch's products by their names in cutegen's op."""
    if node.target in (_ATEN.mm.default, _ATEN.bmm.default):
        return dict(zip(OPERANDS, node.args, strict=True))
    if node.target not in (_ATEN.addmm.default, _ATEN.baddbmm.default):
        return None
    added, a, b = node.args
    value, out = added.meta.get("val"), node.meta.get("val")
    if not isinstance(value, Tensor) or not isinstance(out, Tensor):
        return None
    plain = node.kwargs.get("alpha", 1) == node.kwargs.get("beta", 1) == 1
    if value.dim() == 1 and plain and value.stride(0) == 1 and _same(value.shape[0], out.shape[-1]):
        return {"a": a, "b": b, "bias": added}
    if value.dim() == out.dim() and all(_same(x, y) for x, y in zip(value.shape, out.shape, strict=True)):
        return {"a": a, "b": b, "c": added}
    return None


def _same(x: Any, y: Any) -> bool:
    """Return whether two extents are the same without a guard: the same number, or the same symbol."""
    return x == y if isinstance(x, int) and isinstance(y, int) else str(x) == str(y)


def _is_compact(form: Form) -> bool:
    step = 1
    for extent, stride in zip(reversed(form.shape), reversed(form.strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _only_view(node: fx.Node) -> fx.Node | None:
    """Return the view that alone reads a node, and keeps its columns."""
    if len(node.users) != 1:
        return None
    (user,) = node.users
    if user.target not in _VIEWS or not isinstance(user.meta.get("val"), Tensor):
        return None
    return user if _same(user.meta["val"].shape[-1], node.meta["val"].shape[-1]) else None


def _rewrite(graph: fx.Graph, product: Product, chosen: Candidate, view: fx.Node | None, tail: Tail | None) -> None:
    """Put one call in the place of the product, and nothing in that of its activation."""
    node, tensors = product.node, product.tensors
    terms = {
        "bias": tensors.get("bias"),
        "activation": chosen.activation,
        "alpha": None if chosen.alpha == 1 else chosen.alpha,
        "beta": None if chosen.c is None else chosen.beta,
        "c": tensors.get("c"),
    }
    with graph.inserting_before(node):
        given = {name: value for name, value in terms.items() if value is not None}
        made = graph.call_function(OPS.matmul.default, (tensors["a"], tensors["b"]), given)
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    if tail is not None:
        tail.nodes[-1].replace_all_uses_with(view or made)
        for each in _last_first(tail):
            graph.erase_node(each)


def _last_first(tail: Tail) -> Iterator[fx.Node]:
    """Yield the nodes of a tail so that each is unused when its turn comes."""
    left = set(tail.nodes)
    while left:
        unused = [each for each in left if not each.users]
        yield from unused
        left -= set(unused)


def _digest() -> str:
    """Return a digest of the files that decide what a graph becomes."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:32]
