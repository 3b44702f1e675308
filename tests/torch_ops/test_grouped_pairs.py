"""Activations of pairs of columns in `cutegen.grouped_mm`: against a loop in float64, by torch, executor and GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cutegen  # noqa: E402
import cutegen.torch_ops.grouped  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.contract.problem import Pairs  # noqa: E402
from cutegen.dispatch.formula import paired  # noqa: E402
from cutegen.dispatch.model import spec_of  # noqa: E402
from cutegen.dispatch.request import Request  # noqa: E402
from cutegen.dispatch.resolve import CallTarget  # noqa: E402
from cutegen.errors import OperandError  # noqa: E402
from cutegen.grouped_mm import resolved_groups  # noqa: E402
from cutegen.pack.building import build_all, make_pack  # noqa: E402
from cutegen.pack.kernel_list import read_list  # noqa: E402
from cutegen.plan import plan  # noqa: E402
from cutegen.torch_ops import eager, grouped  # noqa: E402
from tests.torch_ops.test_gated import ORDERS, by_torch, taken_apart  # noqa: E402
from tests.torch_ops.test_grouped_mm import ROOM, SUMS, K, close, looped, named, operands  # noqa: E402

N = 48
GIVEN = [4, 4, 30]
HALVES: dict[str, Any] = {"activation": "swiglu", "pairs": "halves", "first": "gate"}
FORMS = ("m", "padded")


@pytest.fixture
def executor(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        yield


def experts(form: str, dtype: Any = torch.bfloat16, *, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Rows, weights of N columns, and a bias for each column of each group."""
    a, _ = operands(form, len(GIVEN), dtype)
    b, bias = torch.randn(len(GIVEN), K, N).to(dtype), torch.randn(len(GIVEN), N).to(dtype)
    return a.to(device), b.to(device), bias.to(device)


def exactly(form: str, tensors: tuple[Tensor, ...], order: tuple[str | int, str], name: str = "swiglu") -> Tensor:
    """The result in float64; 0 where no group is, as that of sums of 0."""
    a, b, bias = (x.double() for x in tensors)
    found: Tensor = by_torch(name, looped(form, a, b, GIVEN, bias), *order)
    return found


def stored_error(form: str, tensors: tuple[Tensor, ...], order: tuple[str | int, str]) -> Tensor:
    """What swiglu errs by if its sums are rounded to bf16 first, and it is computed in bf16.

    Gate, up, silu and the product are each off by 2^-8 of themselves, and silu's slope is below 1.1.
    """
    with torch.no_grad():
        a, b, bias = (x.double() for x in tensors)
        gate, up = taken_apart(looped(form, a, b, GIVEN, bias), *order)
    return 2.0**-8 * 4.2 * (gate * up).abs() + SUMS


@pytest.mark.parametrize(("pairs", "first"), ORDERS)
@pytest.mark.parametrize("form", FORMS)
def test_pairs_are_in_the_order_that_a_call_names(form: str, pairs: str | int, first: str) -> None:
    tensors = experts(form)
    terms = {"activation": "swiglu", "pairs": pairs, "first": first, "bias": tensors[2], **named(form, GIVEN)}
    found = cutegen.grouped_mm(tensors[0], tensors[1], **terms)
    assert found.dtype is torch.bfloat16
    close(found, exactly(form, tensors, (pairs, first)))


@pytest.mark.dsl
@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("pairs", "first"), [pytest.param(*each, marks=[pytest.mark.slow] if i else []) for i, each in enumerate(ORDERS)]
)
def test_one_kernel_multiplies_and_joins_the_pairs(
    pairs: str | int, first: str, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of operands that no kernel of pairs reads as they are: rows next to each other, and odd strides."""
    a, b, bias = experts("m")
    if turned:
        a, b = a.mT.contiguous().mT, torch.randn(len(GIVEN), K, N + 1).bfloat16()[..., :N]
    terms = {"activation": "swiglu", "pairs": pairs, "first": first, "bias": bias, **named("m", GIVEN)}
    monkeypatch.setattr("cutegen.torch_ops.grouped.activated", None)  # torch joins nothing
    found = cutegen.grouped_mm(a, b, **terms)
    close(found, exactly("m", (a, b, bias), (pairs, first)))
    said = cutegen.explain(a, b, **terms)
    assert "x, y -> silu(x) * y" in said
    assert ("copied: a" in said, "copied: b" in said) == (turned, turned or pairs != "halves")


class _Products(TorchDispatchMode):  # type: ignore[misc]
    """Counts the products of groups."""

    count = 0

    def __torch_dispatch__(self, op: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        self.count += op._schema.name == "cutegen::grouped_mm"
        return op(*given, **(named or {}))


def test_the_gradient_reads_the_sums_that_were_stored() -> None:
    """A backward pass has two products, of A and of B: the sums are not computed again."""
    a, b, bias = experts("m")
    terms = {**HALVES, "bias": bias, **named("m", GIVEN)}
    found = cutegen.grouped_mm(a.requires_grad_(), b.requires_grad_(), **terms)
    with _Products() as products:
        found.backward(torch.ones_like(found))
    assert products.count == 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("order", [("halves", "up"), (8, "gate")])
@pytest.mark.parametrize("by", ["torch", pytest.param("executor", marks=[pytest.mark.dsl, pytest.mark.slow])])
def test_gradients_are_those_of_the_loop(
    form: str, order: tuple[str | int, str], by: Any, kernels: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the bias, with NaN where no group is."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    tensors = experts(form)
    inside = exactly(form, tuple(torch.ones_like(x) for x in tensors), order) != 0
    exact = tuple(x.double().requires_grad_() for x in tensors)
    wanted = exactly(form, exact, order)
    grad = torch.randn(wanted.shape, dtype=torch.bfloat16)
    wanted.backward(grad.double())
    with torch.no_grad():
        tensors[0][~inside.any(-1)] = torch.nan
        grad[~inside] = torch.nan
    mine = tuple(x.requires_grad_() for x in tensors)
    terms = {"activation": "swiglu", "pairs": order[0], "first": order[1], **named(form, GIVEN)}
    with cutegen.matmul_settings(cpu_tensors=by):
        found = cutegen.grouped_mm(mine[0], mine[1], bias=mine[2], **terms)
        found.backward(grad)
    assert ((found.double() - wanted).abs() <= stored_error(form, tuple(x.detach() for x in exact), order)).all()
    for one, other in zip(mine, exact, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert (one.grad.double() - other.grad).abs().max() <= 2.0**-5 * other.grad.abs().max()  # NaN is not


@pytest.mark.dsl
@pytest.mark.parametrize("by", ["torch", pytest.param("executor", marks=pytest.mark.slow)])
def test_what_no_group_has_of_pairs_is_zero_or_left(by: Any, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kernel of pairs torch joins them, and leaves the same."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    a, b, bias = experts("m")
    terms = {**HALVES, "bias": bias, **named("m", GIVEN)}
    with cutegen.matmul_settings(cpu_tensors=by):
        whole = cutegen.grouped_mm(a, b, **terms)
        assert not whole[30:].any()
        for fused in (True, False):
            monkeypatch.setattr("cutegen.torch_ops.eager.takes_pairs", lambda *_, fused=fused: fused)
            out = torch.full_like(whole, 7.0)
            assert cutegen.grouped_mm(a, b, out=out, **terms) is out
            assert (out[30:] == 7.0).all()
            assert torch.equal(out[:30], whole[:30])
            kept = cutegen.grouped_mm(a, b, tail="keep", **terms)
            assert torch.equal(kept[:30], whole[:30])


def test_parts_of_k_have_pairs_too_and_groups_of_columns_none() -> None:
    a, b = torch.randn(5, ROOM), torch.randn(ROOM, N)
    found = cutegen.grouped_mm(a, b, **HALVES, **named("k", GIVEN))
    close(found, by_torch("swiglu", looped("k", a.double(), b.double(), GIVEN), "halves", "gate"))
    of_columns = torch.randn(3, 5, K), torch.randn(K, ROOM - 1)
    with pytest.raises(OperandError, match=r"mat_b: found groups of columns, with pairs of them; expected groups of"):
        cutegen.grouped_mm(of_columns[0], of_columns[1], **HALVES, **named("n", GIVEN))
    a, b, bias = experts("m")
    with pytest.raises(OperandError, match=r"mat_b: found N = 48; expected a multiple of 64"):
        cutegen.grouped_mm(a, b, **{**HALVES, "pairs": 32}, **named("m", GIVEN))
    with pytest.raises(OperandError, match=r"bias: found shape \(3, 24\); expected \(3, 48\) or \(48,\)"):
        cutegen.grouped_mm(a, b, bias=bias[:, :24], **HALVES, **named("m", GIVEN))


def test_compiled_calls_are_whole_graphs() -> None:
    a, b, bias = experts("m")
    offs = named("m", GIVEN)["offs"]

    def step(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
        return cutegen.grouped_mm(x, w, offs=ends, bias=bias, **HALVES)

    assert torch.equal(torch.compile(step, fullgraph=True, backend="aot_eager")(a, b, offs), step(a, b, offs))
    grads = []
    for run in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        w = b.clone().requires_grad_()
        run(a, w, offs).float().square().sum().backward()
        grads.append(w.grad)
    assert torch.equal(*grads)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_ops_keep_their_promises(form: str) -> None:
    ops, (a, b, bias) = torch.ops.cutegen, (x.float().requires_grad_() for x in experts(form))
    given = named(form, GIVEN).popitem()[1]
    which = (given, None) if form == "m" else (None, given)
    for op in (ops.grouped_mm, ops.grouped_mm_aux):
        torch.library.opcheck(op, (a, b, *which, bias, paired("swiglu", 8, "up")))


def test_autocast_casts_the_operands() -> None:
    a, b, bias = experts("m", torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = cutegen.grouped_mm(a, b, bias=bias, **HALVES, **named("m", GIVEN))
    narrow = a.bfloat16(), b.bfloat16(), bias
    close(found, exactly("m", narrow, ("halves", "gate")))


def test_a_request_names_expression_and_order_and_reads_them_back() -> None:
    a, b, bias = experts("m")
    terms = {**HALVES, "bias": bias, **named("m", GIVEN)}
    request = resolved_groups(a, b, arch="h100", **terms).request
    assert (request.pairs, request.bias) == (Pairs("gate"), "bf16")
    assert Request.from_json(request.as_json(), "list") == request
    other = resolved_groups(a, b, arch="a100", **terms).request
    assert (other.pairs, other.expression) == (None, None)  # torch joins the pairs
    assert other == replace(resolved_groups(a, b, arch="a100", bias=bias, offs=terms["offs"]).request, c=other.c)
    assert other.c.dtype == "f32"
    along_k = b.mT.contiguous().mT
    joined = resolved_groups(a, along_k, arch="a100", **terms).request
    assert (joined.pairs, joined.b.major, joined.c.dtype) == (Pairs("gate"), "k", "bf16")  # threads take them apart
    for spec in (joined, replace(joined, target="sm_120")):
        assert plan(spec_of(spec), spec.target).family == "sm80"


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("order", [("halves", "gate"), (8, "up"), ("interleaved", "gate")], ids=str)
def test_kernels_of_mma_sync_take_pairs_apart_along_k(
    order: tuple[str | int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an A100: weights of (N, K) go to one kernel, those of (K, N) to a kernel of sums and torch."""
    on_a100 = lambda *_, **__: CallTarget("sm_80")  # noqa: E731
    apart, through_torch = grouped._apart, []
    monkeypatch.setattr(eager, "call_target", on_a100)
    monkeypatch.setattr(grouped, "call_target", on_a100)
    monkeypatch.setattr(grouped, "_apart", lambda *call: through_torch.append(1) or apart(*call))
    a, b, bias = experts("m")
    terms = {"activation": "swiglu", "pairs": order[0], "first": order[1], "bias": bias, **named("m", GIVEN)}
    for weights, expected in ((b.mT.contiguous().mT, 0), (b, 1)):
        through_torch.clear()
        close(cutegen.grouped_mm(a, weights, **terms), exactly("m", (a, b, bias), order))
        assert len(through_torch) == expected
    x, w = torch.randn(33, K).bfloat16(), torch.randn(N, K).bfloat16()
    found = cutegen.matmul(x, w.T, activation="swiglu", pairs=order[0], first=order[1])
    close(found, by_torch("swiglu", x.double() @ w.double().T, *order))


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.usefixtures("executor")
def test_a_pack_of_recorded_calls_serves_them(tmp_path: Path, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, bias = experts("m", torch.float16)
    monkeypatch.setenv("CUTEGEN_RECORD", str(tmp_path / "calls.toml"))
    terms = {**HALVES, "bias": bias, **named("m", GIVEN)}
    first = cutegen.grouped_mm(a, b, **terms)
    monkeypatch.delenv("CUTEGEN_RECORD")
    make_pack(tmp_path / "experts.cutepack", build_all(read_list(tmp_path / "calls.toml"), kernels, jobs=1))
    with cutegen.load_pack(tmp_path / "experts.cutepack"):
        said = cutegen.explain(a, b, **terms, arch="h100")
        again = cutegen.grouped_mm(a, b, **terms)
        assert "made for 64x48x24 in 4 groups" in said
        assert "made for 64x48x24 in 4 groups" not in cutegen.explain(a, b, **{**terms, "first": "up"}, arch="h100")
    assert torch.equal(first, again)


@pytest.mark.dsl
@pytest.mark.usefixtures("executor")
def test_a_repeated_call_is_replayed_with_other_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, bias = experts("m")
    cutegen.grouped_mm(a, b, bias=bias, **HALVES, **named("m", [1, 2, 3]))
    monkeypatch.setattr("cutegen.torch_ops.grouped.resolved_groups", None)  # nothing is resolved again
    found = cutegen.grouped_mm(a, b, bias=bias, **HALVES, **named("m", GIVEN))
    close(found, exactly("m", (a, b, bias), ("halves", "gate")))
    with pytest.raises(TypeError):  # another order of columns is another call
        cutegen.grouped_mm(a, b, bias=bias, **{**HALVES, "first": "up"}, **named("m", GIVEN))


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("order", ORDERS)
def test_calls_on_a_gpu_are_those_of_the_loop(form: str, order: tuple[str | int, str]) -> None:
    """Repeated, replayed in a graph with other ends, and with gradients; the host waits for nothing."""
    tensors = experts(form, device="cuda")
    given = {name: each.cuda() for name, each in named(form, GIVEN).items()}
    terms = {"activation": "swiglu", "pairs": order[0], "first": order[1], "bias": tensors[2], **given}
    wanted = exactly(form, tuple(x.cpu() for x in tensors), order)
    cutegen.grouped_mm(tensors[0], tensors[1], **terms)
    try:
        torch.cuda.set_sync_debug_mode("error")
        found = cutegen.grouped_mm(tensors[0], tensors[1], **terms)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    close(found.cpu(), wanted)
    (ends,) = given.values()
    graph = torch.cuda.CUDAGraph()
    ends.zero_()
    with torch.cuda.graph(graph):
        replayed = cutegen.grouped_mm(tensors[0], tensors[1], **terms)
    graph.replay()
    assert not replayed.any()
    ends.copy_(torch.tensor(GIVEN))
    graph.replay()
    assert torch.equal(replayed, found)
    b = tensors[1].clone().requires_grad_()
    recorded = cutegen.grouped_mm(tensors[0], b, **terms)
    host = tuple(x.cpu() for x in tensors)
    assert ((recorded.detach().cpu().double() - wanted).abs() <= stored_error(form, host, order)).all()
    grad = torch.randn_like(recorded)
    (mine,) = torch.autograd.grad(recorded, b, grad)
    exact = tuple(x.double().requires_grad_() for x in host)
    (theirs,) = torch.autograd.grad(exactly(form, exact, order), exact[1], grad.cpu().double())
    assert (mine.cpu().double() - theirs).abs().max() <= 2.0**-5 * theirs.abs().max()
