"""A call like one that was made before: the look-up serves it, and what only addresses and values say is seen anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.dispatch.provider import PACK, Answer  # noqa: E402
from cutegen.dispatch.providers import providers  # noqa: E402
from cutegen.dispatch.request import Request  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from cutegen.torch_ops import call_cache, eager, torch_entry  # noqa: E402
from cutegen.torch_ops.call import Call  # noqa: E402
from cutegen.torch_ops.linear import linear  # noqa: E402
from tests.torch_ops.cases import check_kept, half  # noqa: E402
from tests.torch_ops.exact import Exact, close, close_gradients  # noqa: E402

pytestmark = pytest.mark.dsl
HALF = torch.float16
PLAIN_AND_FUSED = pytest.mark.parametrize("terms", [{}, {"residual": (16, 32)}], ids=["plain", "fused"], indirect=True)


@pytest.fixture(autouse=True)
def _executed(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        yield


@pytest.fixture
def terms(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Numbers, and tensors of the shapes that are given, which need a gradient if they are a bias."""
    made = {name: half(*x) if isinstance(x, tuple) else x for name, x in request.param.items()}
    return {name: x.requires_grad_() if name == "bias" else x for name, x in made.items()}


@pytest.fixture(params=["by guards", "by key"])
def _looked_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated calls are served by either look-up."""
    if request.param == "by key":
        monkeypatch.setattr(torch_entry, "memoize", lambda *_: None)


def resolved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that go the thorough way from now on."""
    seen: list[Any] = []
    real = eager.resolved_tensors

    def spy(*arguments: Any) -> Any:
        seen.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(eager, "resolved_tensors", spy)
    return seen


def test_other_values_and_numbers_are_computed_after_one_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    w, bias = half(32, 64).T, half(32)
    out, c = torch.empty(16, 32, dtype=HALF), half(16, 32)
    calls = [
        lambda a, n: (cutegen.matmul(a, w), Exact(a, w)),
        lambda a, n: (cutegen.matmul(a, w, bias=bias, out=out), Exact(a, w, bias)),
        lambda a, n: (cutegen.matmul(a, w, c=c, alpha=n, beta=2 * n), Exact(a, w, c=c, alpha=n, beta=2 * n)),
    ]
    for call in calls:
        found, wanted = call(half(16, 64), 0.5)
        close(found, wanted, "first")
    seen = resolved(monkeypatch)
    for call in calls:
        found, wanted = call(half(16, 64), 0.25)
        close(found, wanted, "again")
    assert seen == []


OUT = torch.zeros(16, 32, dtype=HALF)
PLAIN = Call(torch.zeros(16, 64, dtype=HALF), torch.zeros(32, 64, dtype=HALF).T)
FUSED = PLAIN._replace(activation="silu", residual=OUT, alpha=1.0)
CHANGES: dict[str, dict[str, Any]] = {
    "activation": {"activation": "relu"},
    "another activation": {"activation": "gelu"},
    "bias": {"bias": OUT[0]},
    "a bias of another type": {"bias": OUT[0].float()},
    "residual": {"residual": OUT},
    "a residual of another type": {"residual": OUT.float()},
    "a c of another type": {"c": OUT.float()},
    "no residual": {"residual": None},
    "c": {"c": OUT},
    "scale_a": {"scale_a": torch.zeros(1)},
    "scale_b": {"scale_b": torch.zeros(1)},
    "alpha": {"alpha": 0.5},
    "no alpha": {"alpha": None},
    "out": {"out": OUT},
    "an out with other strides": {"out": torch.zeros(32, 16, dtype=HALF).T},
    "out_dtype": {"out_dtype": torch.float32},
    "aux": {"aux": True},
    "another shape": {"a": PLAIN.a[:8]},
    "other strides": {"b": torch.zeros(64, 32, dtype=HALF)},
    "another type": {"a": PLAIN.a.bfloat16()},
    "another device": {"a": PLAIN.a.to("meta")},
    "another alignment": {"a": torch.zeros(16 * 64 + 4, dtype=HALF)[4:].view(16, 64)},
}
"""Of a call, one at a time: other kernels, or other launches."""


def test_calls_that_differ_in_what_a_kernel_depends_on_have_keys_of_their_own() -> None:
    for call in (PLAIN, FUSED):
        changed = {name: call._replace(**change) for name, change in CHANGES.items()}
        calls = {"as it is": call, **{name: x for name, x in changed.items() if not is_like(x, call)}}
        assert len({x.key for x in calls.values()}) == len(calls) > len(CHANGES) - 3


def test_calls_that_differ_in_values_and_numbers_have_one_key() -> None:
    one = FUSED._replace(bias=OUT[0], c=OUT, beta=0.5)
    other = one._replace(**{name: x.clone() + 1 for name, x in one.tensors.items() if name != "b"}, alpha=2, beta=3.0)
    assert one.key == other.key


def is_like(one: Call, other: Call) -> bool:
    """Whether a change leaves a call as it is, but for the value of a number."""
    return all(x is y or (isinstance(x, float) and isinstance(y, float)) for x, y in zip(one, other, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("_looked_up")
def test_calls_that_differ_in_one_term_have_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, twice, with other values."""
    monkeypatch.setattr(call_cache, "table", call_cache._Table())
    w, out = half(32, 64).T, torch.empty(16, 32, dtype=HALF)
    for _ in range(2):
        a, beside, bias = half(16, 64), half(16, 32), half(32)
        rows, columns = torch.rand(16, 1) + 0.5, torch.rand(1, 32) + 0.5
        for terms in (
            {},
            {"activation": "relu"},
            {"activation": "gelu"},
            {"bias": bias},
            {"bias": bias, "activation": "relu"},
            {"residual": beside},
            {"residual": beside, "activation": "relu"},
            {"residual": beside, "alpha": 0.5},
            {"residual": beside, "bias": bias},
            {"c": beside},
            {"c": beside, "beta": 0.5, "alpha": 2.0},
            {"alpha": 0.5},
        ):
            exact = Exact(a, w, **terms)
            close(cutegen.matmul(a, w, **terms), exact, str(list(terms)))
            close(cutegen.matmul(a, w, out=out.fill_(torch.nan), **terms), exact, f"out, {[*terms]}")
            wide = {name: x.float() if name == "c" else x for name, x in terms.items()}
            found = cutegen.matmul(a, w, out_dtype=torch.float32, **wide)
            assert found.dtype is torch.float32
            close(found, exact, f"f32, {[*terms]}")
        for scales, scale in (({"scale_a": rows}, rows), ({"scale_b": columns}, columns)):
            close(cutegen.matmul(a, w, **scales), Exact(a, w, scale=scale), str(list(scales)))


def test_a_call_like_one_before_is_looked_up_by_guards_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    w, bias, c, out = half(32, 64).T, half(32), half(16, 32), torch.empty(16, 32, dtype=HALF)
    layer, scale = cutegen.Linear(64, 32, dtype=HALF).requires_grad_(False), torch.rand(16, 1)
    square = half(16, 16)

    def in_place(a: Any) -> Any:
        before = c.clone()
        cutegen.matmul(a, w, c=c, beta=0.5, out=c)
        return c, Exact(a, w, c=before, beta=0.5)

    calls = [
        lambda a: (cutegen.matmul(a, w), Exact(a, w)),
        lambda a: (cutegen.matmul(a, w, bias=bias, out=out), Exact(a, w, bias)),
        lambda a: (layer(a), Exact(a, layer.weight.T, layer.bias)),
        lambda a: (cutegen.matmul(a, w, alpha=2, residual=out), Exact(a, w, alpha=2, residual=out)),
        lambda a: (cutegen.matmul(a, w, scale_a=scale), Exact(a, w, scale=scale)),
        lambda a: (cutegen.matmul(a, w, out_dtype=torch.float32), Exact(a, w)),
        lambda _: (cutegen.matmul(square, square), Exact(square, square)),
        in_place,
    ]
    for call in calls:
        call(half(16, 64))
    monkeypatch.setattr(torch_entry, "compute", None)
    for number, call in enumerate(calls):
        found, wanted = call(half(16, 64))
        close(found, wanted, str(number))


def test_modes_and_gradients_are_noticed_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    a, weight = half(16, 64), torch.nn.Parameter(half(32, 64))
    seen: list[str] = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            seen.append(str(op))
            return op(*arguments, **(keywords or {}))

    for terms in ({}, {"alpha": 0.5}):
        with torch.no_grad():
            plain = [cutegen.matmul(a, weight.T, **terms) for _ in range(2)][1]
            with Seeing():
                assert torch.equal(cutegen.matmul(a, weight.T, **terms), plain)
            assert "cutegen.matmul.default" in seen
            seen.clear()
            with torch.device("cpu"):  # a function mode
                assert torch.equal(cutegen.matmul(a, weight.T, **terms), plain)
            stacked = torch.func.vmap(lambda x, terms=terms: cutegen.matmul(x, weight.T, **terms))(a.view(2, 8, 64))
            assert torch.equal(stacked.view(16, 32), plain)
        graded = cutegen.matmul(a, weight.T, **terms)
        assert graded.requires_grad
        assert torch.equal(graded, plain)
        with torch.inference_mode():
            assert cutegen.matmul(a, weight.T, **terms).is_inference()


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "has_bias"), [(None, False), ("relu", True), ("gelu", True)])
def test_a_recorded_call_like_one_before_is_looked_up_by_guards_alone(
    activation: str | None, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = cutegen.Linear(64, 32, has_bias, dtype=HALF, activation=activation)
    weight, bias = layer.weight, layer.bias
    calls = (layer, lambda x: cutegen.matmul(x, weight.mT, bias=bias, activation=activation))
    for call in calls:
        call(half(16, 64).requires_grad_()).sum().backward()
    monkeypatch.setattr(torch_entry, "record", None)  # what serves a call that is recorded for the first time
    for call in calls:
        x = half(16, 64).requires_grad_()
        layer.zero_grad()
        found = call(x)
        exact = Exact(x, weight.T, bias, activation)
        close(found, exact)
        grad = exact.random_gradient(HALF)
        found.backward(grad)
        close_gradients({"a": x} | ({"bias": bias} if has_bias else {}), exact, grad)
        close(weight.grad.T, exact.gradients(grad)["b"], "weight")
        with torch.no_grad():
            assert not call(x).requires_grad
        with pytest.raises(RequestError, match="create_graph=True"):
            torch.autograd.grad(call(x).sum(), x, create_graph=True)


def test_a_recorded_call_like_one_before_keeps_only_what_a_needed_gradient_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = (
        (lambda a, b, bias: cutegen.matmul(a, b, bias=bias), None),
        (lambda a, b, bias: cutegen.matmul(a, b, bias=bias, activation="relu"), "relu"),
        (lambda a, b, bias: linear(a, b.T, bias, "relu"), "relu"),
    )
    for call, activation in calls:
        check_kept(call, activation)
    monkeypatch.setattr(torch_entry, "compute", None)
    for call, activation in calls:
        check_kept(call, activation)


def test_a_recorded_call_of_more_terms_is_no_plain_one() -> None:
    """Of the same A, B and bias, one after the other, and twice."""
    a, w, bias, residual = half(16, 64).requires_grad_(), half(32, 64).T, half(32), half(16, 32)
    for _ in range(2):
        plain, more = cutegen.matmul(a, w, bias=bias), cutegen.matmul(a, w, bias=bias, residual=residual, alpha=2.0)
        of_plain, of_more = Exact(a, w, bias), Exact(a, w, bias, residual=residual, alpha=2.0)
        for what, found, exact in (("plain", plain, of_plain), ("more", more, of_more)):
            close(found, exact, what)
            grad = exact.random_gradient(HALF)
            close(torch.autograd.grad(found, a, grad)[0], exact.gradients(grad)["a"], f"gradient of {what}")


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_a_recorded_call_with_a_worse_aligned_tensor_is_right(activation: str | None) -> None:
    w, memory = half(32, 64).T, half(16 * 64 + 8)
    for start in (0, 0, 1):
        a = memory[start : start + 16 * 64].view(16, 64).requires_grad_()
        found, exact = cutegen.matmul(a, w, activation=activation), Exact(a, w, activation=activation)
        close(found, exact, str(start))
        grad = exact.random_gradient(HALF)
        close(torch.autograd.grad(found, a, grad)[0], exact.gradients(grad)["a"], f"gradient, {start}")


def test_8_bit_floats_are_refused_a_gradient_after_a_call_without_one() -> None:
    a, w = (half(*shape).to(torch.float8_e4m3fn).requires_grad_() for shape in ((16, 64), (32, 64)))
    for _ in range(2):
        with torch.no_grad():
            cutegen.matmul(a, w.T)
        with pytest.raises(RequestError, match="require gradients"):
            cutegen.matmul(a, w.T)


def test_a_tensor_times_itself_is_right_each_time() -> None:
    a = half(32, 32)
    for _ in range(3):
        close(cutegen.matmul(a, a), Exact(a, a))


@PLAIN_AND_FUSED
def test_a_worse_aligned_tensor_goes_the_thorough_way(terms: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "table", call_cache._Table())
    w, memory = half(32, 64).T, half(16 * 64 + 8)
    cutegen.matmul(half(16, 64), w, **terms)
    seen = resolved(monkeypatch)
    a = memory[1 : 1 + 16 * 64].view(16, 64)
    close(cutegen.matmul(a, w, **terms), Exact(a, w, **terms), "aligned to 2 bytes")
    assert len(seen) == 1


@PLAIN_AND_FUSED
def test_tf32_is_noticed_the_second_time(terms: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "table", call_cache._Table())
    a, w, seen = torch.randn(16, 64), torch.randn(32, 64).T, resolved(monkeypatch)
    before = torch.backends.cuda.matmul.fp32_precision
    found = []
    try:
        for precision in ("ieee", "ieee", "tf32", "tf32", "ieee"):
            torch.backends.cuda.matmul.fp32_precision = precision
            found.append((cutegen.matmul(a, w, **terms), len(seen)))
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert [count for _, count in found] == [1, 1, 2, 2, 2]
    exact, rounded = found[0][0], found[2][0]
    assert not torch.equal(exact, rounded)
    assert all(torch.equal(x, exact if i in (0, 1, 4) else rounded) for i, (x, _) in enumerate(found))


@PLAIN_AND_FUSED
def test_each_alignment_keeps_a_kernel_of_its_own(terms: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "table", call_cache._Table())
    chosen: list[int] = []
    real = eager.prepare_call

    def spy(*arguments: Any, **how: Any) -> Any:
        ready = real(*arguments, **how)
        chosen.append(ready.served.kernel.contract.tensor("a").align_bytes)
        return ready

    monkeypatch.setattr(eager, "prepare_call", spy)
    w, memory = half(32, 64).T, half(16 * 64 + 8)
    for start in (1, 0, 4, 1, 0, 4):
        a = memory[start : start + 16 * 64].view(16, 64)
        close(cutegen.matmul(a, w, **terms), Exact(a, w, **terms), str(start))
    assert chosen == [2, 16, 8]


@pytest.mark.parametrize("terms", [{}, {"alpha": 0.5}, {"bias": (32,)}], ids=["plain", "alpha", "bias"], indirect=True)
def test_memory_that_was_freed_is_noticed_the_second_time(terms: dict[str, Any]) -> None:
    for freed in range(2):
        operands = [half(16, 64), half(32, 64).T]
        for _ in range(2):
            cutegen.matmul(*operands, **terms)
        operands[freed].untyped_storage().resize_(0)
        with pytest.raises(OperandError, match="its memory was freed"):
            cutegen.matmul(*operands, **terms)


def test_numbers_beyond_float32_are_noticed_the_second_time() -> None:
    a, w, c = half(16, 64), half(32, 64).T, half(16, 32)
    largest, too_large = 2.0**128 - 2.0**104, 2.0**128 - 2.0**103
    for _ in range(2):
        assert cutegen.matmul(a, w, alpha=-largest, out_dtype=torch.float32).isfinite().any()
        assert not cutegen.matmul(a, w, c=c, beta=torch.inf).isfinite().any()
        for terms in ({"alpha": too_large}, {"c": c, "beta": -too_large}, {"alpha": 10**400}):
            with pytest.raises(OperandError, match="expected a number within the range of float32"):
                cutegen.matmul(a, w, out_dtype=torch.float32 if "c" not in terms else None, **terms)


@pytest.mark.usefixtures("_looked_up")
@pytest.mark.parametrize("terms", [{}, {"residual": (16, 64)}], ids=["plain", "fused"], indirect=True)
def test_memory_shared_with_an_operand_is_noticed_the_second_time(terms: dict[str, Any]) -> None:
    memory, w = half(2 * 16 * 64), half(64, 64).T
    a, apart = memory[: 16 * 64].view(16, 64), memory[16 * 64 :].view(16, 64)
    cutegen.matmul(a, w, out=apart, **terms)
    with pytest.raises(OperandError, match="memory shared with a"):
        cutegen.matmul(a, w, out=memory[8 : 8 + 16 * 64].view(16, 64), **terms)


IN_KERNELS = {"scale_a": "scale_m", "scale_b": "scale_n"}


def beside(x: Any) -> tuple[Any, Any]:
    """A copy of `x` and a result of 16 x 32 halfs whose last bytes are its first."""
    memory = torch.zeros(16 * 32 * 2 - 16 + x.untyped_storage().nbytes(), dtype=torch.uint8)
    moved = memory[16 * 32 * 2 - 16 :].view(x.dtype).as_strided(x.shape, x.stride()).copy_(x)
    return moved, memory[: 16 * 32 * 2].view(HALF).view(16, 32)


@pytest.mark.usefixtures("_looked_up")
@pytest.mark.parametrize("names", [("bias",), ("bias", "residual", "c", "scale_a", "scale_b")], ids=len)
def test_memory_shared_with_any_operand_is_noticed_the_second_time(names: tuple[str, ...]) -> None:
    operands = {"a": half(16, 64), "b": half(32, 64).T, "bias": half(32), "residual": half(16, 32), "c": half(16, 32)}
    operands |= {"scale_a": torch.rand(16, 1) + 0.5, "scale_b": torch.rand(1, 32) + 0.5}
    operands = {name: operands[name] for name in ("a", "b", *names)}
    for _ in range(2):
        cutegen.matmul(**operands, out=torch.empty(16, 32, dtype=HALF))
    for name, x in operands.items():
        moved, out = beside(x)
        with pytest.raises(OperandError, match=f"memory shared with {IN_KERNELS.get(name, name)}"):
            cutegen.matmul(**{**operands, name: moved}, out=out)


@PLAIN_AND_FUSED
@pytest.mark.usefixtures("_looked_up")
def test_every_write_to_out_is_counted(terms: dict[str, Any]) -> None:
    a, w, out = half(16, 64), half(32, 64).T, torch.empty(16, 32, dtype=HALF)
    for count in range(1, 4):
        cutegen.matmul(a, w, out=out, **terms)
        assert out._version == count


def test_gradients_autocast_and_the_negative_bit_are_noticed_the_second_time() -> None:
    a, w = half(16, 64), half(32, 64).T
    plain = cutegen.matmul(a, w)
    assert cutegen.matmul(a.clone().requires_grad_(), w).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        assert cutegen.matmul(a, w).dtype is torch.bfloat16
    flipped = torch._neg_view(a)
    assert torch.equal(cutegen.matmul(flipped, w), -plain)


def test_the_negative_bit_is_noticed_each_time() -> None:
    a, w, bias, c = half(16, 64), half(32, 64).T, half(32), half(16, 32)
    plain = cutegen.matmul(a, w)
    given = torch._neg_view(torch.full((16, 32), torch.nan, dtype=HALF))
    for _ in range(3):
        assert torch.equal(cutegen.matmul(torch._neg_view(a), w), -plain)
        assert torch.equal(cutegen.matmul(a, w, bias=torch._neg_view(bias)), cutegen.matmul(a, w, bias=-bias))
        assert torch.equal(cutegen.matmul(a, w, c=torch._neg_view(c)), cutegen.matmul(a, w, c=-c))
        assert cutegen.matmul(a, w, out=given) is given
        assert torch.equal(given, plain)
    wide = half(16, 128)
    cutegen.matmul(torch._neg_view(wide[:, :64]), w)
    close(cutegen.matmul(wide[:, :64], w), Exact(wide[:, :64], w), "strides of a copy")


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, of the first dual tensor
@pytest.mark.parametrize("terms", [{}, {"alpha": 0.5}])
def test_a_tangent_is_refused_the_second_time(terms: dict[str, Any]) -> None:
    a, w = half(16, 64), half(32, 64).T
    cutegen.matmul(a, w, **terms)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, torch.ones_like(a))
        with pytest.raises(OperandError, match="a tangent of forward-mode AD"):
            cutegen.matmul(dual, w, **terms)
        cutegen.matmul(a, w, **terms)


def test_a_provider_that_comes_later_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        name = "asked"
        requests: list[Request] = []  # noqa: RUF012

        def answer(self, request: Request) -> Answer:
            self.requests.append(request)
            return Answer("nothing here")

    a, w, asked = half(16, 64), half(32, 64).T, Asked()
    cutegen.matmul(a, w)
    providers.register(PACK, asked)
    try:
        cutegen.matmul(a, w)
    finally:
        providers.withdraw(asked)
    assert [str(request.problem) for request in asked.requests] == ["16x32x64"]


def test_threads_have_launches_of_their_own() -> None:
    wrong: list[Any] = []
    w = half(32, 64).T

    def work() -> None:
        for _ in range(3):
            a = half(16, 64)
            try:
                close(cutegen.matmul(a, w), Exact(a, w))
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
