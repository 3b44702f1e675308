"""What a call hands in beside A and B: exactly what was asked for, of the right form, apart from the result."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutegen.contract.launch import LaunchContract, Strides, TensorContract
from cutegen.contract.problem import MAX_BATCH, ProblemShape
from cutegen.errors import OperandError
from cutegen.run import Kernel, cpu
from cutegen.run.call.check import check_call
from cutegen.run.call.operands import CPU, Form, view_of
from cutegen.run.driver import Driver

torch = pytest.importorskip("torch")
MakeContract = Callable[..., LaunchContract]
SOURCE = TensorContract("source", "f16", ("m", "n"), "n", 16)
RESIDUAL = TensorContract("residual", "f32", ("m", "n"), "m", 16)
BIAS = TensorContract("bias", "f16", ("n",), "n", 2)
AUX = TensorContract("aux", "f16", ("m", "n"), "n", 16)
EMPTY_KERNEL = ".version 8.0 .target sm_80 .address_size 64 .visible .entry gemm() { ret; }"
M, N, K, L = 16, 24, 32, 3


def half(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.float16)


class Tensors:
    """Operands of a kernel with every extra, made once: nothing is computed here."""

    a, b, out = half(M, K), half(N, K).t(), half(M, N)
    extras = {  # noqa: RUF012
        "c": half(M, N),
        "residual": torch.zeros(N, M).t(),
        "bias": half(N),
        "aux": half(M, N),
        "alpha": 1.0,
        "beta": 0.5,
    }


@pytest.fixture
def api(fake_api: Any) -> Any:
    return fake_api()


@pytest.fixture
def kernel(api: Any, artifact: Any, contract: MakeContract) -> Kernel:
    """Every tensor and scalar, on a driver that keeps a record."""
    asked = contract(extras=(SOURCE, RESIDUAL, BIAS, AUX), scalars=("alpha", "beta"), epilogue=("x -> x + c",))
    api.parameters = asked.parameters
    return Kernel(artifact(asked, ptx=EMPTY_KERNEL), driver=lambda: Driver(api))


@pytest.fixture
def plain(artifact: Any, contract: MakeContract) -> Kernel:
    return Kernel(artifact(contract(), ptx=EMPTY_KERNEL))


def refused(kernel: Kernel, **changed: Any) -> OperandError:
    operands = {"a": Tensors.a, "b": Tensors.b, "out": Tensors.out, **Tensors.extras, **changed}
    with pytest.raises(OperandError) as caught:
        kernel(operands.pop("a"), operands.pop("b"), **operands)
    return caught.value


@pytest.mark.parametrize("name", Tensors.extras)
def test_what_is_missing_is_named(kernel: Kernel, name: str) -> None:
    error = refused(kernel, **{name: None})
    assert (error.operand, error.found, error.fix) == (name, "none", f"pass {name}=")


@pytest.mark.parametrize("name", Tensors.extras)
def test_what_was_not_asked_for_is_refused_with_the_way_to_ask(plain: Kernel, name: str) -> None:
    with pytest.raises(OperandError) as caught:
        plain(Tensors.a, Tensors.b, out=Tensors.out, **{name: Tensors.extras[name]})
    assert caught.value.operand == name
    assert caught.value.expected == "none: this kernel's epilogue takes no operands"
    assert name in caught.value.fix or name == "c"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "c of B's shape": ({"c": half(N, M)}, "found shape (24, 16); expected (16, 24), (M, N) of the result"),
    "c of another type": ({"c": torch.zeros(M, N)}, "found dtype f32; expected f16; `c.to(torch.float16)`"),
    "c of the other major": ({"c": half(N, M).t()}, 'expected stride 1 in N (problem.c.major = "n")'),
    "c with a crooked stride": ({"c": half(M, N + 1)[:, :N]}, "found leading stride 25: 25 x 2 = 50 bytes"),
    "c elsewhere": ({"c": torch.empty(M, N, dtype=torch.float16, device="meta")}, "expected a CUDA device, or the CPU"),
    "residual of the other major": (
        {"residual": torch.zeros(M, N)},
        'expected stride 1 in M (problem.residual.major = "m"); `residual.t().contiguous().t()`',
    ),
    "one row for all": ({"c": half(1, N).expand(M, N)}, "found strides (0, 1) (broadcast)"),
    "bias along M": ({"bias": half(M)}, "found shape (16,); expected (24,), (N) of the result"),
    "bias as a row": ({"bias": half(1, N)}, "found shape (1, 24); expected (24,), (N) of the result"),
    "bias of every second": ({"bias": half(2 * N)[::2]}, "found stride 2; expected contiguous elements"),
    "bias of one element": ({"bias": half(1).expand(N)}, "found stride 0 (broadcast)"),
    "aux of another shape": ({"aux": half(M, N + 8)}, "found shape (16, 32); expected (16, 24), (M, N) of a @ b"),
    "aux is out": ({"aux": Tensors.out}, "operand aux: found memory shared with out"),
    "aux is c": ({"aux": Tensors.extras["c"]}, "operand aux: found memory shared with c"),
    "out is aux's": ({"out": Tensors.extras["aux"]}, "operand aux: found memory shared with out"),
    "alpha is a tensor": ({"alpha": torch.ones(())}, "found a Tensor; expected a number, by value"),
    "beta is text": ({"beta": "1"}, "found a str; expected a number, by value"),
    "alpha is an array": ({"alpha": np.ones(())}, "found a ndarray; expected a number, by value; pass `alpha.item()`"),
    "alpha is too large": ({"alpha": 1e39}, "found 1e+39; expected a number within the range of float32"),
    "alpha is too large for a double": (
        {"alpha": np.longdouble("1e400")},
        "found 1e+400; expected a number within the range of float32",
    ),
    "beta is too large for a float": ({"beta": -(10**400)}, "found an integer of more than 64 bits; expected a number"),
    "c has a batch and the result none": ({"c": half(L, M, N)}, "found shape (3, 16, 24); expected (16, 24)"),
}


def test_a_name_that_no_kernel_has_is_refused_by_what_takes_operands_by_name(plain: Kernel) -> None:
    a, b = np.zeros((M, K), np.float16), np.zeros((K, N), np.float16)
    with pytest.raises(OperandError, match="tail: found no operand of a kernel; expected one of scale_a"):
        plain.call_size(a, b, np.zeros((M, N), np.float16), tail=a)
    with pytest.raises(OperandError, match="tail: found no operand of a kernel"):
        plain.execute(a, b, out=np.zeros((M, N), np.float16), tail=a)


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_found_and_expected(kernel: Kernel, case: str) -> None:
    changed, message = REFUSED[case]
    assert message in str(refused(kernel, **changed))


def test_out_may_be_exactly_c_and_nothing_near_it(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    buffer = np.zeros((M + 1, 64), np.float16)
    operands = {name: cuda_array(_numpy(x)) if hasattr(x, "numpy") else x for name, x in Tensors.extras.items()}
    a, b = cuda_array(_numpy(Tensors.a)), cuda_array(_numpy(Tensors.b))
    c = cuda_array(buffer[:M, :N])
    kernel(a, b, **{**operands, "c": c}, out=c)
    values = dict(zip((x.name for x in api.parameters), api.launches[0]["values"], strict=True))
    assert values["source"] == values["c"]
    for near in (buffer[1:, :N], buffer[:M, 8 : 8 + N]):
        with pytest.raises(OperandError, match="found memory shared with c; expected separate memory, or exactly"):
            kernel(a, b, **{**operands, "c": c}, out=cuda_array(near))


@pytest.mark.parametrize("major", ["n", "m"])
def test_out_may_be_a_residual_of_the_same_layout(
    api: Any, artifact: Any, contract: MakeContract, cuda_array: Any, major: str
) -> None:
    asked = contract(
        extras=(TensorContract("residual", "f16", ("m", "n"), major, 16),), epilogue=("x -> x + residual",)
    )
    api.parameters = asked.parameters
    kernel = Kernel(artifact(asked, ptx=EMPTY_KERNEL), driver=lambda: Driver(api))
    buffer = np.zeros((N, N), np.float16)
    a, b = cuda_array(np.zeros((N, K), np.float16)), cuda_array(np.zeros((N, K), np.float16).T)
    operands = {"residual": cuda_array(buffer if major == "n" else buffer.T), "out": cuda_array(buffer)}
    if major == "n":
        kernel(a, b, **operands)
        assert len(api.launches) == 1
        return
    with pytest.raises(OperandError, match="found memory shared with residual; expected separate memory, or exactly"):
        kernel(a, b, **operands)


def test_a_launch_gets_addresses_scalars_sizes_and_strides(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    arrays = {name: _numpy(x) for name, x in Tensors.extras.items() if hasattr(x, "numpy")}
    a, b, out = (_numpy(x) for x in (Tensors.a, Tensors.b, Tensors.out))
    for alpha, beta in ((1.5, -2.0), (0.1, 3)):
        extras = {name: cuda_array(array) for name, array in arrays.items()}
        kernel(cuda_array(a), cuda_array(b), out=cuda_array(out), **extras, alpha=alpha, beta=beta)
        addresses = tuple(array.ctypes.data for array in (a, b, out, *arrays.values()))
        scalars = (float(np.float32(alpha)), float(beta))
        leading = (K, K, N, N, M, N)  # of A, B, C, source, residual and aux
        assert api.launches[-1]["values"] == (*addresses, *scalars, M, N, K, *leading, *[0] * 7)


def _numpy(tensor: Any) -> Any:
    return tensor.numpy()


def forms(*tensors: Any) -> list[Form]:
    return [view_of(tensor, name).form for tensor, name in zip(tensors, ("a", "b", "out", "c"), strict=False)]


def test_batches_have_strides_of_their_own(contract: MakeContract) -> None:
    a, b, out = half(L, M, K), half(N, K).t(), half(L + 2, M, N)[:L]
    call = check_call(contract(), *forms(a, b, out))
    assert call.size.problem == ProblemShape(M, N, K, L)
    assert call.size.strides == {"a": Strides(K, M * K), "b": Strides(K, 0), "c": Strides(N, M * N)}
    assert contract().geometry(call.size.problem).grid == (1, 1, L)
    call = check_call(contract(), *forms(half(1, M, K).expand(L, M, K), half(L, N, K).transpose(1, 2), out))
    assert (call.size.strides["a"].batch, call.size.strides["b"].batch) == (0, N * K)


def test_a_batch_stride_beyond_32_bits(contract: MakeContract) -> None:
    huge = Form((2, M, K), (2**33, K, 1), "f16", CPU, "numpy", False)
    call = check_call(contract(), huge, *forms(Tensors.b, half(2, M, N))[0:2])
    assert call.size.strides["a"].batch == 2**33


BATCHES: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    "of other sizes": ((half(L, M, K), half(2, N, K).mT, half(L, M, N)), "operand b: found a batch of 2; expected 3"),
    "result without": (
        (half(L, M, K), Tensors.b, Tensors.out),
        "found shape (16, 24); expected (3, 16, 24), (L, M, N)",
    ),
    "result broadcast": (
        (half(L, M, K), Tensors.b, half(1, M, N).expand(L, M, N)),
        "operand out: found batch stride 0, so that matrices of the batch overlap; expected at least 384",
    ),
    "result overlapping": (
        (half(L, M, K), Tensors.b, half(10**4).as_strided((L, M, N), (N * 8, N, 1))),
        "operand out: found batch stride 192, so that matrices of the batch overlap",
    ),
    "crooked stride": (
        (half(10**4).as_strided((L, M, K), (M * K + 4, K, 1)), Tensors.b, half(L, M, N)),
        "operand a: found batch stride 516: 516 x 2 = 1032 bytes; expected a multiple of 16 bytes, that is 8 elements",
    ),
    "K-major only in the batch": ((half(L, K, M).mT, Tensors.b, half(L, M, N)), "`a.contiguous()`"),
    "N-major": ((half(L, M, K), half(L, K, N), half(L, M, N)), "`b.mT.contiguous().mT`"),
    "too many": (
        (half(1, M, K).expand(MAX_BATCH + 1, M, K), Tensors.b, half(1, M, N).expand(MAX_BATCH + 1, M, N)),
        "operand a: found a batch of 65536; expected at most 65535, the limit of grid.z; split the batch",
    ),
}


@pytest.mark.parametrize("case", BATCHES)
def test_batches_that_do_not_fit(contract: MakeContract, case: str) -> None:
    tensors, message = BATCHES[case]
    with pytest.raises(OperandError) as caught:
        check_call(contract(), *forms(*tensors))
    assert message in str(caught.value)


@pytest.mark.parametrize("batch", [2, L])
def test_reversed_batch_of_numpy(contract: MakeContract, batch: int) -> None:
    """Of two, the first begins where the last one ends."""
    a = np.zeros((batch, M, K), np.float16)[::-1]
    with pytest.raises(OperandError, match=r"operand a: found batch stride -512 \(reversed\); expected 0 or more"):
        check_call(contract(), *forms(a, Tensors.b, half(batch, M, N)))


def test_batches_between_each_others_rows_are_apart(contract: MakeContract) -> None:
    out = half(M, L, N).transpose(0, 1)
    assert check_call(contract(), *forms(half(L, M, K), Tensors.b, out)).size.strides["c"] == Strides(L * N, N)


def test_an_empty_batch_is_not_launched(plain: Kernel) -> None:
    out = half(0, M, N)
    assert plain(half(0, M, K), Tensors.b, out=out) is out
    assert plain(np.zeros((0, M, K), np.float16), Tensors.b.numpy()).shape == (0, M, N)  # NumPy's strides are all 0


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_fresh_results_of_a_batch_are_padded_and_apart(contract: MakeContract, framework: str) -> None:
    from cutegen.run.call.storage import call_tensors, empty

    for majors in ("kkn", "kkm"):
        result = call_tensors(contract(majors))["c"]
        like = half(1) if framework == "torch" else np.zeros(1, np.float16)
        out = empty(result.storage((L, 5, 11)), "float16", like, view_of(like, "a").form, None)
        assert tuple(out.shape) == (L, 5, 11)
        assert check_call(contract(majors), *forms(half(L, 5, 8), half(11, 8).t(), out)).size.problem.batch == L


def as_freed(tensor: Any) -> Any:
    copy = tensor.clone()
    copy.untyped_storage().resize_(0)
    return copy


@pytest.mark.parametrize("spoil", [as_freed, torch._neg_view], ids=["freed", "negative bit"])
@pytest.mark.parametrize("name", ["a", "b", "out", "c", "residual", "bias", "aux"])
def test_every_tensor_of_a_call_is_what_its_memory_says(kernel: Kernel, name: str, spoil: Callable[[Any], Any]) -> None:
    good = {"a": Tensors.a, "b": Tensors.b, "out": Tensors.out, **Tensors.extras}[name]
    assert refused(kernel, **{name: spoil(good)}).operand == name
    operands = {"out": Tensors.out, **Tensors.extras, "a": Tensors.a, "b": Tensors.b, name: spoil(good)}
    with pytest.raises(OperandError, match=f"operand {name}: found"):
        kernel.execute(operands.pop("a"), operands.pop("b"), **operands)


def test_what_a_call_writes_is_no_longer_what_autograd_kept(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = SimpleNamespace(launch=lambda *arguments, **options: None)
    monkeypatch.setattr(cpu, "Program", SimpleNamespace(parse=lambda text: idle))
    versions = {name: Tensors.extras[name]._version for name in ("c", "residual", "bias", "aux")}
    out, before = Tensors.out.clone(), Tensors.out.clone()._version
    kernel(Tensors.a, Tensors.b, out=out, **Tensors.extras)
    assert out._version > before
    assert {name for name, version in versions.items() if Tensors.extras[name]._version > version} == {"aux"}
