"""`c` of another float type than the result: converted exactly, added in f32, and rounded once with the sum."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
import cutegen.torch_ops.ops  # noqa: E402 - defines the ops, without a call before
from cutegen.build import Cache  # noqa: E402
from cutegen.errors import OperandError  # noqa: E402
from cutegen.torch_ops.call import Call  # noqa: E402
from cutegen.torch_ops.eager import resolved_call  # noqa: E402
from tests.torch_ops.cases import half  # noqa: E402
from tests.torch_ops.exact import Exact, close, close_gradients  # noqa: E402

HALF, WIDE, BRAIN, E4M3 = torch.float16, torch.float32, torch.bfloat16, torch.float8_e4m3fn
TYPES = [(WIDE, HALF), (BRAIN, WIDE), (BRAIN, HALF), (HALF, BRAIN), (E4M3, BRAIN), (BRAIN, E4M3)]
"""Types of c, and of the result."""


def source(dtype: torch.dtype, *shape: int) -> Any:
    """Random elements that f16 and bf16 would round, if `dtype` has them: near 1, with a multiple of 2**-12."""
    return (1 + torch.randint(-1024, 1024, shape) / 4096).to(dtype)


def check(
    dtype: torch.dtype, out_dtype: torch.dtype, activation: str | None, *, by_op: bool = False, on: str = "cpu"
) -> None:
    """The result, that in given memory, and every gradient."""
    a, b, c = (x.to(on) for x in (half(16, 64) / 8, half(32, 64).T, source(dtype, 16, 32)))
    terms: dict[str, Any] = {"activation": activation, "alpha": 0.5, "beta": 0.75}
    exact = Exact(a, b, c=c, **terms)
    out = torch.full((16, 32), torch.nan, device=on).to(out_dtype)
    assert cutegen.matmul(a, b, c=c, out=out, **terms) is out
    close(out, exact, "out")
    leaves = {name: x.requires_grad_() for name, x in {"a": a, "b": b, "c": c}.items()}
    call = torch.ops.cutegen.matmul if by_op else cutegen.matmul
    found = call(**leaves, **terms, out_dtype=out_dtype)
    assert found.dtype is out_dtype
    close(found, exact)
    grad = exact.random_gradient(out_dtype)
    found.backward(grad)
    close_gradients(leaves, exact, grad)


@pytest.mark.parametrize("by_op", [False, True], ids=["eager", "op"])
@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize(("dtype", "out_dtype"), TYPES)
def test_by_torch(dtype: torch.dtype, out_dtype: torch.dtype, activation: str | None, by_op: bool) -> None:
    check(dtype, out_dtype, activation, by_op=by_op)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "out_dtype"), TYPES)
def test_by_the_executor(
    dtype: torch.dtype, out_dtype: torch.dtype, kernels: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: the second call is like the first, with other values. C is not read if beta is 0."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        for _ in range(2):
            check(dtype, out_dtype, "gelu")
        a, b = half(16, 64), half(32, 64).T
        nothing = torch.full((16, 32), torch.nan).to(dtype)
        terms: dict[str, Any] = {"alpha": 0.5, "activation": "gelu", "out_dtype": out_dtype}
        close(cutegen.matmul(a, b, c=nothing, beta=0.0, **terms), Exact(a, b, alpha=0.5, activation="gelu"), "beta 0")
        if dtype in (WIDE, BRAIN):
            scaled = {"beta": 2.0**-16, "c": torch.full((16, 32), 131072.0, dtype=dtype)}  # more than f16 has
            found = cutegen.matmul(a, b, **scaled, **terms)
            close(found, Exact(a, b, alpha=0.5, activation="gelu", **scaled), "a large c")


@pytest.mark.gpu
@pytest.mark.parametrize("by_op", [False, True], ids=["eager", "op"])
@pytest.mark.parametrize(("dtype", "out_dtype"), TYPES)
def test_on_a_gpu(dtype: torch.dtype, out_dtype: torch.dtype, by_op: bool) -> None:
    for _ in range(2):
        check(dtype, out_dtype, "gelu", by_op=by_op, on="cuda")


def test_what_is_converted_and_why() -> None:
    a, b = half(16, 64), half(64, 32)

    def copies(c: torch.dtype, out_dtype: torch.dtype) -> tuple[str, dict[str, str]]:
        found = resolved_call(Call(a, b, c=source(c, 16, 32), out_dtype=out_dtype))
        return found.request.c.dtype, dict(found.copies)

    to_f32 = "it is bf16, and the kernel's C is f32"
    assert copies(HALF, HALF) == ("f16", {})
    assert copies(BRAIN, WIDE) == ("f32", {"c": to_f32})
    rounded = "the sum is f32, then rounded to f16"
    assert copies(WIDE, HALF) == ("f32", {"out": f"c is f32: {rounded}"})
    assert copies(BRAIN, HALF) == ("f32", {"c": to_f32, "out": f"c is bf16: {rounded}"})
    assert copies(E4M3, BRAIN) == ("bf16", {"c": "it is e4m3, and the kernel's C is bf16"})
    said = cutegen.explain(a, b, c=source(WIDE, 16, 32), arch="sm_90")
    assert "result: f16" in said
    assert rounded in said


@pytest.mark.slow
def test_compiled_and_traced() -> None:
    def call(a: Any, b: Any, c: Any) -> Any:
        return cutegen.matmul(a, b, c=c, beta=0.5, activation="relu")

    a, b, c = half(5, 8), half(8, 12), source(WIDE, 5, 12)
    found = torch.compile(call, fullgraph=True, backend="aot_eager")(a, b, c)
    assert found.dtype is HALF
    close(found, Exact(a, b, c=c, beta=0.5, activation="relu"))
    arguments = [x.clone().requires_grad_() for x in (a, b, c)]
    terms = (None, "gelu", None, None, 0.5)
    for op in (torch.ops.cutegen.matmul, torch.ops.cutegen.matmul_aux):
        torch.library.opcheck(op, (*arguments[:2], *terms, arguments[2]))


def test_the_gradient_of_an_expanded_c_is_summed_in_its_own_type() -> None:
    a, b, c = half(300, 8), half(8, 12), source(WIDE, 1, 12).requires_grad_()
    exact = Exact(a, b, c=c, beta=0.3)
    grad = exact.random_gradient(HALF)
    cutegen.matmul(a, b, c=c, beta=0.3).backward(grad)
    close_gradients({"c": c}, exact, grad)


@pytest.mark.parametrize(
    ("c", "out_dtype", "said"),
    [
        (torch.int32, WIDE, "s32; expected f32, the result's"),
        (torch.int8, HALF, "s8; expected f16, the result's"),
        (WIDE, torch.int32, "f32; expected s32, the result's"),
        (torch.float64, WIDE, "float64; expected f32, the result's"),
    ],
)
def test_other_types_are_refused(c: torch.dtype, out_dtype: torch.dtype, said: str) -> None:
    with pytest.raises(OperandError, match=f"operand c: found dtype {said}"):
        cutegen.matmul(half(4, 8), half(8, 6), c=torch.ones(4, 6, dtype=c), out_dtype=out_dtype)


def test_arrays_of_numpy_are_not_converted() -> None:
    a, b = half(4, 8).numpy(), half(8, 6).numpy()
    with pytest.raises(OperandError, match="operand c: found dtype f32; expected f16, the result's"):
        cutegen.matmul(a, b, c=torch.ones(4, 6).numpy())
