"""A layer in 8-bit floats: forward and backward passes on the executor, against float64 of the same copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from tests.torch_ops.exact import ACTIVATIONS, Exact, close  # noqa: E402

pytestmark = pytest.mark.dsl
E4M3, E5M2, BF16 = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16


@pytest.fixture
def _executed(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        yield


def exact(copies: cutegen.Float8Copies) -> tuple[Any, Any]:
    """The matrices that the two copies stand for, in float64."""
    rows = copies.values.double() * copies.scale.double().reshape(-1, 1)
    return rows, copies.across.double() * copies.across_scale.double().reshape(1, -1)


def layer_of(
    of_x: cutegen.Float8Copies, of_weight: cutegen.Float8Copies, bias: Any = None, activation: str | None = None
) -> Exact:
    """The layer of such copies by their rows."""
    scale = of_x.scale.double().reshape(-1, 1) * of_weight.scale.double().reshape(1, -1)
    return Exact(of_x.values, of_weight.values.T, bias, activation, scale=scale)


def operands(x_shape: tuple[int, ...], n: int, device: str = "cpu") -> tuple[Any, Any, Any]:
    """x, weight and bias, rows of which are of very different sizes."""
    x = torch.randn(x_shape, dtype=BF16) * torch.logspace(-3, 3, x_shape[-2])[:, None].to(BF16)
    weight = torch.randn(n, x_shape[-1], dtype=BF16) * torch.logspace(-2, 2, n)[:, None].to(BF16)
    x, weight, bias = (tensor.to(device).requires_grad_() for tensor in (x, weight, torch.randn(n, dtype=BF16)))
    return x, weight, bias


def check_gradients(
    x_shape: tuple[int, ...], n: int, activation: str | None, *, one_scale: bool = False, device: str = "cpu"
) -> None:
    x, weight, bias = operands(x_shape, n, device)
    rows = x.detach().reshape(-1, x_shape[-1])
    of_x, of_weight = cutegen.Float8Copies.of(rows), cutegen.Float8Copies.of(weight)
    if one_scale:
        x_scale = rows.abs().max().float().reshape(1) / 448
        narrow = (rows.float() / x_scale).to(E4M3)
        of_x = cutegen.Float8Copies(narrow, x_scale, narrow.t().contiguous().t(), x_scale)
    out = cutegen.float8_linear(x, weight, bias, of_x=of_x, of_weight=of_weight, activation=activation)
    (x64, x64_across), (w64, w64_across) = exact(of_x), exact(of_weight)
    before = (x64 @ w64.T + bias.detach().double()).requires_grad_()
    wanted = ACTIVATIONS[activation](before)
    assert out.dtype is BF16
    call = layer_of(of_x, of_weight, bias, activation)
    close(out.flatten(0, -2), call)
    grad = call.random_gradient(BF16)
    out.backward(grad.view(out.shape))
    wanted.backward(grad.double())
    close(bias.grad, call.gradients(grad)["bias"], "bias")
    # The gradient before the activation, quantized to e5m2 by row and by column: two significant bits, 2^-3 of each.
    for name, found, right in (
        ("x", x.grad, before.grad @ w64_across),
        ("weight", weight.grad, before.grad.T @ x64_across),
    ):
        assert found.dtype is BF16
        error = (found.double().reshape(right.shape) - right).norm() / right.norm()
        assert error < 0.08, f"gradient of {name}: {error}"


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_gradients_by_torch_on_the_cpu(activation: str | None) -> None:
    check_gradients((3, 40, 48), 64, activation)
    check_gradients((33, 47), 61, activation, one_scale=True)


@pytest.mark.usefixtures("_executed")
def test_gradients_by_executed_kernels() -> None:
    check_gradients((32, 64), 48, "gelu")


@pytest.mark.gpu
@pytest.mark.parametrize("activation", [None, "silu", "gelu"])
def test_gradients_on_a_gpu(activation: str | None) -> None:
    check_gradients((3, 136, 256), 192, activation, device="cuda")
    check_gradients((64, 512), 128, activation, one_scale=True, device="cuda")


def test_a_quantized_gradient_is_multiplied_exactly() -> None:
    """With a gradient that e5m2 holds as it is, only the result's rounding is left."""
    x, weight, _ = operands((32, 64), 48)
    of_x, of_weight = cutegen.Float8Copies.of(x), cutegen.Float8Copies.of(weight)
    out = cutegen.float8_linear(x, weight, of_x=of_x, of_weight=of_weight, out_dtype=torch.float32)
    grad = torch.randint(0, 2, out.shape) * 2.0 - 1
    out.backward(grad)
    (_, x64), (_, w64) = exact(of_x), exact(of_weight)
    close(x.grad, Exact(grad.double(), w64), "x")
    close(weight.grad, Exact(grad.double().T, x64), "weight")


@pytest.mark.parametrize("activation", [None, "gelu", "relu"])
def test_a_result_in_8_bits_has_gradients(activation: str | None) -> None:
    x, weight, bias = (torch.randn(shape, dtype=BF16).requires_grad_() for shape in ((32, 64), (48, 64), (48,)))
    of_x, of_weight = cutegen.Float8Copies.of(x), cutegen.Float8Copies.of(weight)
    exact, found = layer_of(of_x, of_weight, bias, activation), []
    given = exact.random_gradient(E4M3)
    for out_dtype in (BF16, E4M3):
        how: Any = {"activation": activation, "out_dtype": out_dtype}
        out = cutegen.float8_linear(x, weight, bias, of_x=of_x, of_weight=of_weight, **how)
        close(out, exact)
        grad = given.to(out_dtype)
        *of_both, of_bias = torch.autograd.grad(out, (x, weight, bias), grad)
        close(of_bias, exact.gradients(grad)["bias"], "bias")
        found.append(of_both)
    for wide, narrow in zip(*found, strict=True):
        assert (wide - narrow).norm() < 0.08 * wide.norm()


@pytest.mark.parametrize(("x_shape", "n"), [((5, 0), 7), ((0, 16), 7), ((2, 3, 0), 7), ((5, 16), 0)])
def test_empty_layers_are_as_torchs(x_shape: tuple[int, ...], n: int) -> None:
    x, weight = (torch.randn(shape, dtype=BF16).requires_grad_() for shape in (x_shape, (n, x_shape[-1])))
    of_x, of_weight = cutegen.Float8Copies.of(x.flatten(0, -2)), cutegen.Float8Copies.of(weight)
    out = cutegen.float8_linear(x, weight, of_x=of_x, of_weight=of_weight)
    assert torch.equal(out, torch.nn.functional.linear(x, weight))
    out.sum().backward()
    assert (x.grad.shape, weight.grad.shape) == (x.shape, weight.shape)
    assert not x.grad.any()
    assert not weight.grad.any()


def test_only_copies_that_a_needed_gradient_reads_are_kept() -> None:
    for needed, (of_x_kept, of_weight_kept) in enumerate(((False, True), (True, False), (False, False))):
        given = [x.detach() for x in operands((32, 64), 48)]
        given[needed].requires_grad_()
        of_x, of_weight = (cutegen.Float8Copies.of(x) for x in given[:2])
        kept: list[int] = []

        def keep(x: Any, kept: list[int] = kept) -> Any:
            kept.append(x.data_ptr())
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = cutegen.float8_linear(*given, of_x=of_x, of_weight=of_weight)
        out.sum().backward()
        assert given[needed].grad is not None
        pairs = ((of_x, of_x_kept), (of_weight, of_weight_kept))
        assert kept == [x.data_ptr() for copies, is_kept in pairs if is_kept for x in copies[2:]]


def test_copies_hold_a_matrix_by_its_rows_and_by_its_columns() -> None:
    matrix = torch.randn(30, 50) * torch.logspace(-6, 6, 30)[:, None] * torch.logspace(-2, 2, 50)
    matrix[3], matrix[:, 7] = 0, 0
    for dtype, bits in ((E4M3, 3), (E5M2, 2)):
        copies = cutegen.Float8Copies.of(matrix, dtype)
        assert (copies.values.stride(), copies.across.stride()) == ((50, 1), (1, 30))
        by_rows, by_columns = exact(copies)
        for found, most in ((by_rows, matrix.abs().amax(1, keepdim=True)), (by_columns, matrix.abs().amax(0))):
            room = 2.0 ** -(bits + 1) * matrix.abs() + 2.0**-14 * most
            assert ((found - matrix.double()).abs() <= room).all()


def test_copies_of_tiny_elements_are_finite() -> None:
    matrix = torch.zeros(2, 4)
    matrix[0, 0] = 4e-41  # over the largest e5m2 that is less than the least f32
    by_rows, by_columns = exact(cutegen.Float8Copies.of(matrix, E5M2))
    for found in (by_rows, by_columns):
        assert torch.allclose(found, matrix.double(), rtol=0.125, atol=0.0)


def test_without_copies_a_gradient_is_refused_and_told_where_to_give_them() -> None:
    a = torch.randn(16, 32).to(E4M3).requires_grad_()
    b = torch.randn(8, 32).to(E4M3).T
    with pytest.raises(RequestError, match=r"only a forward pass.*cutegen\.float8_linear\(x, weight, of_x="):
        cutegen.matmul(a, b)


def test_a_gradient_of_a_gradient_is_refused() -> None:
    x, weight, _ = operands((4, 16), 8)
    of_x, of_weight = cutegen.Float8Copies.of(x), cutegen.Float8Copies.of(weight)
    y = cutegen.float8_linear(x, weight, of_x=of_x, of_weight=of_weight)
    with pytest.raises(RequestError, match="create_graph=True"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_copies_that_do_not_fit_are_refused_with_a_way_out() -> None:
    x, weight, _ = operands((4, 16), 8)
    of_x, of_weight = cutegen.Float8Copies.of(x), cutegen.Float8Copies.of(weight)
    for changed, said in (
        (of_x._replace(across=of_x.across.t()), r"operand of_x\.across: found .*shape \(16, 4\).*expected .*\(4, 16\)"),
        (of_x._replace(across=of_x.values), r"of_x\.across: found strides \(16, 1\).*stride\(0\) == 1.*contiguous"),
        (of_x._replace(values=x), r"of_x\.values: found torch\.bfloat16.*Float8Copies\.of\(x\)"),
        (
            of_x._replace(across_scale=of_x.scale),
            r"of_x\.across_scale: found shape \(4,\); expected one element, or 16",
        ),
    ):
        with pytest.raises(OperandError, match=said):
            cutegen.float8_linear(x, weight, of_x=changed, of_weight=of_weight)
    with pytest.raises(OperandError, match=r"operand of_x: found a tuple; expected a .*`cutegen\.Float8Copies\(\*of_x"):
        cutegen.float8_linear(x, weight, of_x=tuple(of_x), of_weight=of_weight)
    for part in of_x._fields:
        with pytest.raises(OperandError, match=rf"operand of_x\.{part}: found a float; expected a torch tensor"):
            cutegen.float8_linear(x, weight, of_x=of_x._replace(**{part: 1.0}), of_weight=of_weight)
    with pytest.raises(OperandError, match="operand bias: found a list; expected a torch tensor"):
        cutegen.float8_linear(x, weight, [1.0] * 8, of_x=of_x, of_weight=of_weight)
    with pytest.raises(
        RequestError, match=r"float8_linear: found a call under torch\.func's vmap; .* one of the input"
    ):
        torch.vmap(lambda rows: cutegen.float8_linear(rows, weight, of_x=of_x, of_weight=of_weight))(x[None])
    with pytest.raises(RequestError, match=r"grad_dtype: found torch\.float16"):
        cutegen.float8_linear(x, weight, of_x=of_x, of_weight=of_weight, grad_dtype=torch.float16)
    scale = of_x.scale.clone().requires_grad_()
    with pytest.raises(OperandError, match=r"operand of_x\.scale: .* requires grad.*goes to x; `scale\.detach\(\)`"):
        cutegen.float8_linear(x, weight, of_x=of_x._replace(scale=scale), of_weight=of_weight)
    with torch.no_grad():
        cutegen.float8_linear(x, weight, of_x=of_x._replace(scale=scale), of_weight=of_weight)
    with pytest.raises(RequestError, match="out_dtype: found f99; expected one of f16"):
        cutegen.float8_linear(x, weight, of_x=of_x, of_weight=of_weight, out_dtype="f99")
    assert cutegen.float8_linear(x, weight, of_x=of_x, of_weight=of_weight, out_dtype="f32").dtype is torch.float32
    with pytest.raises(OperandError, match=r"operand x: found shape \(\); expected \(\.\.\., K\)"):
        cutegen.float8_linear(x[0, 0], weight, of_x=of_x, of_weight=of_weight)
    with pytest.raises(RequestError, match=r"dtype: found torch\.int8"):
        cutegen.Float8Copies.of(x, torch.int8)
    with pytest.raises(OperandError, match=r"shape \(2, 4, 16\); expected a matrix"):
        cutegen.Float8Copies.of(torch.randn(2, 4, 16))
    with pytest.raises(OperandError, match="operand matrix: found a list; expected a torch tensor"):
        cutegen.Float8Copies.of([1.0])
    with pytest.raises(OperandError, match="operand weight: found a list; expected a torch tensor"):
        cutegen.float8_linear(x, [1.0], of_x=of_x, of_weight=of_weight)


@pytest.mark.slow
def test_a_layer_with_parameters_is_exported() -> None:
    class Layer(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            of_x, of_weight = cutegen.Float8Copies.of(x), cutegen.Float8Copies.of(self.weight)
            return cutegen.float8_linear(x, self.weight, self.bias, of_x=of_x, of_weight=of_weight, activation="gelu")

    layer, x = Layer(32, 16), torch.randn(6, 32)
    exported = torch.export.export(layer, (torch.randn(4, 32),), dynamic_shapes={"x": {0: torch.export.Dim("m")}})
    assert torch.equal(exported.module()(x), layer(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own
def test_it_compiles_as_one_graph() -> None:
    x, weight, bias = operands((32, 64), 48)

    def step(x: Any, weight: Any, bias: Any) -> Any:
        of_x, of_weight = cutegen.Float8Copies.of(x), cutegen.Float8Copies.of(weight)
        return cutegen.float8_linear(x, weight, bias, of_x=of_x, of_weight=of_weight, activation="gelu")

    found = []
    for run in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        for leaf in (x, weight, bias):
            leaf.grad = None
        run(x, weight, bias).sum().backward()
        found.append((x.grad, weight.grad, bias.grad))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, of the first dual tensor
@pytest.mark.parametrize("dual", ["x", "weight", "bias", "of_x.scale"])
def test_a_tangent_of_forward_mode_ad_is_refused(dual: str) -> None:
    given = {"x": torch.randn(8, 16), "weight": torch.randn(4, 16), "bias": torch.randn(4)}
    of_x, of_weight = (cutegen.Float8Copies.of(given[name]) for name in ("x", "weight"))
    with forward_ad.dual_level():
        if dual in given:
            given[dual] = forward_ad.make_dual(given[dual], given[dual])
        else:
            of_x = of_x._replace(scale=forward_ad.make_dual(of_x.scale, of_x.scale))
        with pytest.raises(OperandError, match=rf"operand {dual}: found a tensor with a tangent .*`{dual}.detach\(\)`"):
            cutegen.float8_linear(**given, of_x=of_x, of_weight=of_weight)
