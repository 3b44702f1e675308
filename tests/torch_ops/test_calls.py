"""`cutegen.matmul` of torch tensors in host memory: by torch, by the executor, and by what torch wraps around ops."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
import cutegen.torch_ops.ops  # noqa: E402 - defines the ops, without a call before
from cutegen.build import Cache  # noqa: E402
from cutegen.dispatch.provider import Served  # noqa: E402
from cutegen.dispatch.providers import providers  # noqa: E402
from cutegen.dispatch.settings import settings  # noqa: E402
from cutegen.errors import CutegenError, OperandError, RequestError  # noqa: E402
from cutegen.torch_ops import eager  # noqa: E402
from tests.torch_ops.cases import half  # noqa: E402
from tests.torch_ops.exact import ACTIVATIONS, Exact, close, close_gradients  # noqa: E402

HALF = torch.float16


def test_scales_types_and_rounding() -> None:
    a, w = (torch.randn(*shape).to(torch.float8_e4m3fn) for shape in ((6, 32), (8, 32)))
    rows, columns = torch.rand(6, 1) + 0.5, torch.rand(8) + 0.5
    out = cutegen.matmul(a, w.T, scale_a=rows, scale_b=columns)
    assert out.dtype is torch.bfloat16
    close(out, Exact(a, w.T, scale=rows.double() * columns.double()))
    whole_a, whole_w = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((6, 32), (8, 32)))
    exact = whole_a.int() @ whole_w.int().T
    assert torch.equal(cutegen.matmul(whole_a, whole_w.T), exact)
    assert torch.equal(cutegen.matmul(whole_a, whole_w.T, out_dtype=torch.int8), exact.clamp(-128, 127).to(torch.int8))
    one = cutegen.matmul(whole_a, whole_w.T, scale_a=torch.tensor(0.25), out_dtype=torch.float32)
    assert torch.equal(one, 0.25 * exact.float())


def test_sums_of_integers_saturate_in_host_memory_too() -> None:
    """As those of integer MMAs do; 40,000 products of 255 and 255 are more than 2**31."""
    a, minus = torch.full((1, 40_000), 255, dtype=torch.uint8), torch.full((1, 140_000), -128, dtype=torch.int8)
    assert cutegen.matmul(a, a.T, out_dtype=torch.int32).item() == 2**31 - 1
    assert cutegen.matmul(a, a.T, out_dtype=torch.float32).item() == 2.0**31
    assert cutegen.matmul(minus, -1 - minus.T, out_dtype=torch.int32).item() == -(2**31)


def test_numbers_of_other_kinds_multiply_as_floats() -> None:
    a, b, c = half(4, 8), half(8, 6), half(4, 6)
    wanted = cutegen.matmul(a, b, alpha=0.5, beta=0.25, c=c)
    for kind in (Fraction, np.float32, np.float64):
        assert torch.equal(cutegen.matmul(a, b, alpha=kind(0.5), beta=kind(0.25), c=c), wanted)
    w = half(8, 6).requires_grad_()
    found, wanted = (torch.autograd.grad(cutegen.matmul(a, w, alpha=x).sum(), w)[0] for x in (Fraction(1, 2), 0.5))
    assert torch.equal(found, wanted)
    assert torch.equal(
        *(torch.vmap(lambda x, by=by: cutegen.matmul(x, b, alpha=by))(a[None]) for by in (Fraction(1, 2), 0.5))
    )


@pytest.mark.parametrize(
    ("of_a", "of_b", "scale", "seen"),
    [
        ((2, 2, 8), (8, 4), {"scale_a": (2, 1)}, (2, 1)),
        ((2, 1, 3, 8), (8, 4), {"scale_a": (3, 1)}, (3, 1)),
        ((3, 1, 8), (8, 4), {"scale_a": (3, 1)}, (3, 1, 1)),
        ((2, 1, 1, 8), (8, 4), {"scale_a": (2, 1, 1)}, (2, 1, 1, 1)),
        ((2, 3, 8), (8,), {"scale_a": (3, 1)}, (3,)),
        ((2, 3, 8), (8,), {"scale_a": (2, 3, 1)}, (2, 3)),
        ((8,), (3, 8, 4), {"scale_b": (3, 1, 4)}, (3, 4)),
        ((8,), (3, 8, 4), {"scale_b": (1, 4)}, (4,)),
        ((2, 8), (3, 1, 8, 4), {"scale_b": (3, 1, 4)}, (3, 1, 1, 4)),
        ((2, 3, 8), (8, 4), {"scale_b": (1, 1, 4)}, (1, 1, 4)),
        ((2, 3, 8), (8, 4), {"scale_b": (2, 1, 4)}, (2, 1, 4)),
        ((2, 5, 3, 8), (1, 8, 4), {"scale_b": (2, 5, 4)}, (2, 5, 1, 4)),
        ((2, 5, 3, 8), (1, 1, 8, 4), {"scale_b": (1, 1, 4)}, (1, 1, 1, 4)),
        ((1, 3, 8), (2, 8, 4), {"scale_a": (1, 3, 1)}, (1, 3, 1)),
        ((2, 5, 3, 8), (8, 4), {"scale_a": (1, 1, 3)}, (1, 1, 3, 1)),
        ((2, 5, 3, 8), (8,), {"scale_a": (1, 1, 3, 1)}, (1, 1, 3)),
        ((2, 5, 3, 8), (8, 4), {"scale_a": (1, 3, 1)}, (1, 1, 3, 1)),
        ((8,), (3, 8, 4), {"scale_b": (1, 1, 4)}, (1, 4)),
        ((8,), (2, 3, 8, 4), {"scale_b": (1, 1, 4)}, (1, 1, 4)),
    ],
)
def test_scales_multiply_their_rows_and_columns_also_of_gradients(of_a: Any, of_b: Any, scale: Any, seen: Any) -> None:
    a, b = half(*of_a).requires_grad_(), half(*of_b).requires_grad_()
    ((name, shape),) = scale.items()
    scale = torch.rand(shape) + 0.5
    out, exact = cutegen.matmul(a, b, **{name: scale}), Exact(a, b, scale=scale.reshape(seen))
    close(out, exact)
    grad = exact.random_gradient(HALF)
    out.backward(grad)
    close_gradients({"a": a, "b": b}, exact, grad)


@pytest.mark.slow
def test_torch_checks_every_op() -> None:
    w, bias, batch = half(12, 16).T.requires_grad_(), half(12).requires_grad_(), half(2, 3, 16)
    a = half(5, 16).requires_grad_()
    samples: list[tuple[Any, ...]] = [
        (a, w),
        (a, w, bias, "gelu", half(5, 12).requires_grad_(), 0.5, 2.0, half(5, 12)),
        (batch, w, bias, "relu"),
        (half(16), w, None, None, None, None, None, None, None, None, torch.float32),
    ]
    for sample in samples:
        torch.library.opcheck(torch.ops.cutegen.matmul, sample)
    torch.library.opcheck(torch.ops.cutegen.matmul_aux, samples[1])
    plain = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in samples[1])
    torch.library.opcheck(torch.ops.cutegen.matmul_out, plain, {"out": torch.empty(5, 12, dtype=HALF)})


def test_fakes_say_what_comes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for of_a, of_b, asked in (((3, 5, 16), (16, 4), None), ((16,), (16,), None), ((2, 16), (16, 4), torch.float32)):
        a, b = half(*of_a), half(*of_b)
        found = cutegen.matmul(a, b, out_dtype=asked)
        with FakeTensorMode() as mode:
            fake = cutegen.matmul(mode.from_tensor(a), mode.from_tensor(b), out_dtype=asked)
        assert (fake.shape, fake.dtype, fake.stride()) == (found.shape, found.dtype, found.stride())


@pytest.mark.parametrize(
    ("terms", "match"),
    [
        ({"bias": (8,)}, r"operand bias: found shape \(8,\); expected \(6,\)"),
        ({"residual": (5, 6)}, r"operand residual: found shape \(5, 6\); expected \(4, 6\)"),
        ({"c": (4, 6, 1)}, r"operand c: found shape \(4, 6, 1\)"),
        ({"scale_a": (6,)}, r"operand scale_a: found shape \(6,\); expected one element, or .*row of a: \(4,\)"),
        ({"out": (4, 6), "out_dtype": torch.float32}, "operand out: found dtype f16; expected f32, the result's"),
        ({"scale_b": (6, 1)}, r"operand scale_b: found shape \(6, 1\).*column of b: \(6,\)"),
        ({"out": (6, 4)}, r"operand out: found shape \(6, 4\); expected \(4, 6\)"),
    ],
)
def test_fakes_refuse_what_calls_refuse(terms: dict[str, Any], match: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for mode in (contextlib.nullcontext(), FakeTensorMode()):
        with mode:
            given = {name: torch.ones(x, dtype=HALF) if isinstance(x, tuple) else x for name, x in terms.items()}
            a, b = torch.ones(4, 8, dtype=HALF), torch.ones(8, 6, dtype=HALF)
            with pytest.raises(OperandError, match=match):
                cutegen.matmul(a, b, **given)


def test_a_wrong_bias_is_refused_while_torch_compiles() -> None:
    step = torch.compile(lambda x, w, bias: cutegen.matmul(x, w, bias=bias), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"operand bias: found shape \(8,\)") as caught:
        step(half(4, 8), half(8, 6), half(8))
    assert type(caught.value).__module__.startswith("torch._dynamo")


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_batch_whose_extent_only_values_say_is_compiled() -> None:
    x, w, kept = half(5, 4, 8).requires_grad_(), half(8, 6), torch.tensor([True, False, True, True, False])
    residual = half(5, 4, 6)

    def of_some(x: Any, kept: Any) -> Any:
        return cutegen.matmul(x[kept], w, activation="gelu")

    def beside_some(x: Any, kept: Any) -> Any:
        return cutegen.matmul(x[kept], w, activation="gelu", residual=residual[kept.clone()])  # of another extent yet

    for function in (beside_some, of_some):
        out = torch.compile(function, fullgraph=True, backend="aot_eager")(x, kept)
        wanted = function(x, kept)
        assert torch.equal(out, wanted)
    assert torch.equal(*(torch.autograd.grad(each.sum(), x)[0] for each in (out, wanted)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
def test_a_traced_call_is_an_op_of_its_program() -> None:
    w = half(8, 6)
    traced = torch.jit.trace(lambda x: cutegen.matmul(x, w, activation="silu"), (half(4, 8),))
    assert "cutegen::matmul" in str(traced.graph)
    x = half(7, 8)
    assert torch.equal(traced(x), cutegen.matmul(x, w, activation="silu"))
    for activation in ACTIVATIONS:
        layer = cutegen.Linear(8, 6, activation=activation, dtype=HALF)
        exact = Exact(x, layer.weight.T, layer.bias, activation)
        found, grad = torch.jit.trace(layer, (x,))(x), exact.random_gradient(HALF)
        close(found, exact, str(activation))
        (of_weight,) = torch.autograd.grad(found, layer.weight, grad)
        close(of_weight.T, exact.gradients(grad)["b"], str(activation))


def test_autocast_makes_operands_its_own_type_and_leaves_the_bias() -> None:
    x, w, bias = torch.randn(4, 8), torch.randn(6, 8, requires_grad=True), torch.randn(6)
    with torch.autocast("cpu", torch.bfloat16):
        out = cutegen.matmul(x, w.T, bias=bias, activation="relu")
        whole = cutegen.matmul(torch.ones(2, 3, dtype=torch.int8), torch.ones(3, 2, dtype=torch.int8))
    assert (out.dtype, whole.dtype) == (torch.bfloat16, torch.int32)
    out.sum().backward()
    assert w.grad.dtype is torch.float32


@pytest.mark.parametrize("out_dtype", [None, torch.float32])
def test_autocast_makes_c_the_type_of_the_result(out_dtype: torch.dtype | None) -> None:
    x, w, c = torch.randn(4, 8), torch.randn(8, 6), torch.randn(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        out = cutegen.matmul(x, w, c=c, beta=2.0, out_dtype=out_dtype)
    assert out.dtype == (out_dtype or torch.bfloat16)
    close(out, Exact(x.bfloat16(), w.bfloat16(), c=c.to(out.dtype), beta=2.0))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_results_in_8_bit_floats_saturate(dtype: torch.dtype) -> None:
    a, b, alpha = half(4, 8), half(8, 6), torch.finfo(dtype).max
    found = cutegen.matmul(a, b, alpha=alpha, out_dtype=dtype)
    close(found, Exact(a, b, alpha=alpha))
    assert (found.float().abs() == alpha).any()


def test_c_is_not_read_where_beta_is_0() -> None:
    a, b, c = half(4, 8), half(8, 6), torch.full((4, 6), torch.nan, dtype=HALF)
    assert torch.equal(cutegen.matmul(a, b, c=c, beta=0.0), cutegen.matmul(a, b))


def test_results_that_are_no_numbers_become_the_integer_0() -> None:
    a, b = torch.full((2, 8), torch.inf, dtype=HALF), half(8, 6)
    assert torch.equal(cutegen.matmul(a, b - b, out_dtype=torch.int8), torch.zeros(2, 6, dtype=torch.int8))


def test_out_is_written_counted_and_may_be_c() -> None:
    a, b = half(4, 8), half(8, 6)
    for out in (torch.full((4, 6), torch.nan, dtype=HALF), torch.full((6, 4), torch.nan, dtype=HALF).T):
        version = out._version
        assert cutegen.matmul(a, b, out=out) is out
        assert out._version > version
        assert torch.equal(out, cutegen.matmul(a, b))
    main = torch.ones(4, 6)
    for _ in range(2):
        cutegen.matmul(a, b, c=main, beta=1.0, out=main)
    close(main, Exact(a, b, alpha=2.0, c=torch.ones(4, 6)), "accumulated")


def test_a_gradient_of_a_gradient_is_refused() -> None:
    a = half(4, 8).requires_grad_()
    with pytest.raises(RequestError, match=r"create_graph=True.*use torch.matmul"):
        torch.autograd.grad(cutegen.matmul(a, half(8, 6)).sum(), a, create_graph=True)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch.func.jvp's own
def test_transforms_that_torch_has_not_for_custom_ops_are_refused() -> None:
    a, b = half(4, 8), half(8, 6)
    with pytest.raises(RequestError, match=r"torch\.func's grad; expected autograd.*torch\.autograd\.grad"):
        torch.func.grad(lambda x: cutegen.matmul(x, b, activation="silu").sum())(a)
    with pytest.raises(RequestError, match=r"torch\.func's jvp"):
        torch.func.jvp(lambda x: cutegen.matmul(x, b), (a,), (a,))
    with pytest.raises(RequestError, match=r"torch\.func's grad; expected autograd, or vmap alone"):
        torch.func.grad(lambda x: torch.vmap(lambda row: cutegen.matmul(row, b))(x).sum())(a)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda a, b: cutegen.matmul(a, [1.0]), "operand b: found a list; expected a torch tensor"),
        (lambda a, b: cutegen.matmul(a, None), "operand b: found a NoneType; expected a torch tensor, like a"),
        (lambda a, b: cutegen.Linear(8, 6)(a.numpy()), "operand a: found a ndarray; expected a torch tensor;"),
        (lambda a, b: cutegen.Linear(8, 6)(None), "operand a: found a NoneType; expected a torch tensor;"),
        (lambda a, b: cutegen.Linear(9, 6)(a), r"operand input: found shape \(4, 8\); expected \(\.\.\., 9\)"),
        (lambda a, b: cutegen.Linear(8, 6)(a.half()), r"operand input: found dtype .*16; .*32 like.*`input\.to"),
        (lambda a, b: cutegen.matmul(a, b, activation=["relu"]), "activation: found .*; expected None or one of relu"),
        (lambda a, b: cutegen.matmul(a.double(), b), "dtype float64; expected one of"),
        (lambda a, b: cutegen.matmul(a, b.bfloat16()), "operand b: found dtype bf16; expected f16 as in a"),
        (lambda a, b: cutegen.matmul(a, b.T), r"K = 6; expected K = 8.*`b.T` if it is stored"),
        (lambda a, b: cutegen.matmul(a, b.to("meta")), "operand b: found device meta; expected cpu"),
        (lambda a, b: cutegen.matmul(a, b, activation="gleu"), "did you mean gelu"),
        (lambda a, b: cutegen.matmul(a, b, alpha=torch.ones(1)), r"alpha: found a Tensor.*`alpha.item\(\)`.*scale_a="),
        (lambda a, b: cutegen.matmul(a, b, beta=1.0), "beta: found without c"),
        (lambda a, b: cutegen.matmul(a, b, alpha=1e300), "alpha: found 1e\\+300; expected .* range of float32"),
        (lambda a, b: cutegen.matmul(a, b, alpha=-(10**400)), "alpha: .* range of float32"),
        (lambda a, b: cutegen.matmul(a, b, beta=Fraction(10) ** 400, c=half(4, 6)), "beta: .* range of float32"),
        (lambda a, b: torch.vmap(lambda x: cutegen.matmul(x, b, out_dtype=5))(a[None]), "out_dtype: found 5; expected"),
        (lambda a, b: cutegen.matmul(a, b, bias=half(8)), r"bias: found shape \(8,\); expected \(6,\)"),
        (lambda a, b: cutegen.matmul(a.requires_grad_(), b, out=half(4, 6)), "operand out:.*torch.no_grad"),
        (
            lambda a, b: torch.ops.cutegen.matmul_out(a.requires_grad_(), b, out=half(4, 6)),
            "operand out:.*torch.no_grad",
        ),
        (lambda a, b: cutegen.matmul(a.to_sparse(), b), "without strided memory"),
        (
            lambda a, b: cutegen.matmul(a, b, scale_a=torch.ones(4).requires_grad_()),
            "a scale that requires grad.*`scale.detach",
        ),
        (
            lambda a, b: cutegen.matmul(a, b, scale_b=torch.ones(6).requires_grad_()),
            "a scale that requires grad.*`scale.detach",
        ),
        (
            lambda a, b: cutegen.matmul(*(x.to(torch.float8_e5m2).requires_grad_() for x in (a, b))),
            "that require gradients; expected only a forward pass",
        ),
    ],
)
def test_wrong_calls_name_what_is_wrong_and_a_way_out(call: Callable[[Any, Any], Any], match: str) -> None:
    with pytest.raises(CutegenError, match=match):
        call(half(4, 8), half(8, 6))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("terms", [{}, {"alpha": 0.5}])
def test_a_tensor_without_a_shape_is_refused(terms: dict[str, Any], layout: Any) -> None:
    a = torch.nested.nested_tensor([torch.randn(4, 8), torch.randn(3, 8)], layout=layout)
    layer = cutegen.Linear(8, 6)
    for call in (lambda x: cutegen.matmul(x, layer.weight.T, **terms), layer):
        with pytest.raises(OperandError, match=r"operand a: found a nested tensor; .*`torch\.nested\.to_padded_tensor"):
            call(a)
        assert call(torch.nested.to_padded_tensor(a, 0.0)).shape == (2, 4, 6)


@pytest.mark.parametrize("terms", [{}, {"alpha": 0.5}])
def test_a_tensor_without_an_address_is_refused_by_the_executor_too(terms: dict[str, Any]) -> None:
    a, b = half(4, 8), half(8, 6)
    with cutegen.matmul_settings(cpu_tensors="executor"):
        for given in ((a.to_sparse(), b), (a, b.to_sparse())):
            with pytest.raises(OperandError, match=r"without strided memory.*to_dense\(\)"):
                cutegen.matmul(*given, **terms)


@pytest.mark.dsl
@pytest.mark.parametrize("by", ["torch", "executor"])
def test_a_result_that_shares_memory_with_an_operand_is_refused(
    by: Any, kernels: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever computes; C as it was and a residual may lie exactly where the result does."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    whole, w = half(65, 64), half(64, 64).T
    a, out, before = whole[:64], half(64, 64), half(64, 64)
    with cutegen.matmul_settings(cpu_tensors=by):
        for shared in (a, whole[1:]):
            with pytest.raises(OperandError, match="memory shared with a"):
                cutegen.matmul(a, w, out=shared)
        with pytest.raises(OperandError, match="memory shared with residual"):
            cutegen.matmul(a[:63], w, residual=out[1:], out=out[:63])
        out.copy_(before)
        close(cutegen.matmul(a, w, residual=out, out=out), Exact(a, w, residual=before), "out")
        halves = half(64, 128)  # its rows lie between one another
        close(cutegen.matmul(halves[:, :64], w, out=halves[:, 64:]), Exact(halves[:, :64], w), "rows between rows")


@pytest.mark.dsl
def test_a_batch_of_one_that_must_be_copied_is_multiplied(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    a, b = half(1, 64, 128)[:, :, ::2], half(1, 1, 128, 64)[:, :, ::2]  # contiguous in neither mode
    with cutegen.matmul_settings(cpu_tensors="executor"):
        close(cutegen.matmul(a, b), Exact(a, b))


@pytest.mark.dsl
def test_a_row_does_not_depend_on_how_many_there_are(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    a, w = half(40, 128), half(32, 128)
    with cutegen.matmul_settings(batch_invariant=True, cpu_tensors="executor"):
        whole = cutegen.matmul(a, w.T)
        assert torch.equal(cutegen.matmul(a[:3], w.T), whole[:3])
        assert torch.equal(cutegen.matmul(a[7], w.T), whole[7])
        assert cutegen.explain(a, w.T).splitlines()[-1] == cutegen.explain(a[:1], w.T).splitlines()[-1]


def test_settings_hold_in_each_with_and_are_refused_where_they_would_not_hold() -> None:
    asked = cutegen.matmul_settings(batch_invariant=True)
    for _ in range(2):
        with asked:
            assert [settings.batch_invariant] == [True]
        assert [settings.batch_invariant] == [False]

    def within(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with cutegen.matmul_settings(batch_invariant=True):
            return cutegen.matmul(a, b)

    with pytest.raises(Exception, match=r"Observed exception|around the compiled call"):
        torch.compile(within, fullgraph=True, backend="eager")(half(4, 8), half(8, 6))


@pytest.mark.parametrize("how", ["eager", "autocast", "vmap", "compiled"])
def test_out_dtype_may_be_a_name_everywhere(how: str) -> None:
    a, b = half(4, 8), half(8, 6)
    call = lambda x, y: cutegen.matmul(x, y, out_dtype="bf16")  # noqa: E731
    exact = Exact(a, b)
    if how == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            found, exact = call(a, b), Exact(a.bfloat16(), b.bfloat16())
    elif how == "vmap":
        found = torch.vmap(call, (0, None))(a[None], b)[0]
    elif how == "compiled":
        found = torch.compile(call, fullgraph=True, backend="aot_eager")(a, b)
    else:
        found = call(a, b)
    assert found.dtype == torch.bfloat16
    close(found, exact)


def test_explain_says_who_computes_and_what_a_gpu_would() -> None:
    assert cutegen.explain(half(4, 8), half(8, 6)).splitlines()[0].endswith("on a GPU it would be")
    assert " sm_90\n" in cutegen.explain(half(4, 8), half(8, 6), arch="h100")
    assert cutegen.explain(half(0, 8), half(8, 6)).endswith("the result is empty and needs no kernel")


def test_prepare_asks_for_other_rows_where_the_tensors_are_and_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    devices: list[str] = []
    real = eager.call_target
    kernel: Any = SimpleNamespace(artifact=SimpleNamespace(hit=True))
    monkeypatch.setattr(providers, "kernel_for", lambda request: asked.append(request) or Served(kernel, "", ""))
    monkeypatch.setattr(eager, "call_target", lambda device, **how: devices.append(device.type) or real(device, **how))
    w = half(32, 72)[:, :60]
    for of_rows in (
        lambda m: (half(m, 60), torch.empty(m, 32)),
        lambda m: (half(m, 68)[:, :60], torch.empty(m, 36)[:, :32]),
        lambda m: (half(m, 72)[:, 4:64], torch.empty(m, 34)[:, 2:]),
        lambda m: (half(60, m).T, torch.empty(m, 32)),
        lambda m: (half(m, 120)[:, ::2], torch.empty(m, 32)),
    ):
        asked.clear()
        cutegen.prepare(of_rows(4)[0], w.T, out=of_rows(1)[1], rows=(4, 16))
        for rows in (4, 16):
            a, out = of_rows(rows)
            cutegen.prepare(a, w.T, out=out)
        assert set(asked[:2]) == set(asked[2:])  # threads ask
        assert len(asked) == 4
    assert set(devices) == {"cpu"}


def test_tf32_is_for_those_who_allow_it() -> None:
    a = torch.empty(64, 64, device="meta")
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for precision, kind in (("ieee", "f32 k-major"), ("tf32", "tf32 k-major")):
            torch.backends.cuda.matmul.fp32_precision = precision
            assert f" {kind}" in cutegen.explain(a, a.T, arch="sm_90")
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_tensors_without_memory_have_results_without_memory() -> None:
    found = cutegen.matmul(torch.empty(3, 8, device="meta"), torch.empty(8, 5, device="meta"), activation="relu")
    assert (found.device.type, found.shape) == ("meta", (3, 5))
