"""`cutegen.matmul` of NumPy arrays, whose PTX is executed, and what `explain` and `prepare` say beforehand."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import cutegen
from cutegen.build import Cache
from cutegen.dispatch.cpu_time_guard import guard_cpu_time
from cutegen.dispatch.formula import Formula
from cutegen.dispatch.resolve import CallTarget, resolve
from cutegen.errors import OperandError, RequestError
from cutegen.matmul import Arguments, Terms
from cutegen.run.call.operands import view_of
from cutegen.spec import chain_of
from cutegen.verify.error_bounds import run_chain
from cutegen.verify.reference import compare, float64_reference
from tests.house.documents import ROOT
from tests.seeding import new_generator


@pytest.fixture(autouse=True)
def _shared_kernels(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))


def half(*shape: int) -> Any:
    return new_generator().standard_normal(shape).astype(np.float16)


def near(found: Any, a: Any, b: Any, expression: str = "x", **operands: Any) -> None:
    """An expression of x = a @ b and of these operands, in f16."""
    sums = float64_reference(np.atleast_2d(a), b).bounded("f32")
    operands = {name: np.asarray(x, np.float64) for name, x in operands.items()}
    wanted = run_chain(sums, chain_of([f"x -> {expression}"]), operands).result
    compared = compare(np.atleast_2d(found), wanted, dtype="f16")
    assert compared.ok, compared
    assert found.shape == np.matmul(a, b).shape


@pytest.mark.dsl
def test_shapes_and_strides_of_any_kind() -> None:
    w = half(32, 64).T
    for a in (half(20, 64), half(64), half(2, 3, 64), half(3, 2, 64).transpose(1, 0, 2), half(20, 128)[:, ::2]):
        near(cutegen.matmul(a, w), a, w)
    assert cutegen.matmul(half(0, 64), w).shape == (0, 32)
    assert np.array_equal(cutegen.matmul(half(4, 0), half(0, 32)), np.zeros((4, 32)))


@pytest.mark.dsl
def test_a_result_that_no_kernel_writes_in_place_arrives_in_out() -> None:
    a, w, whole = half(20, 64), half(32, 64).T, np.full((20, 64), np.float16(7))
    out = whole[:, ::2]
    assert cutegen.matmul(a, w, out=out) is out
    near(out, a, w)
    assert (whole[:, 1::2] == 7).all(), "elements between those of the result"


@pytest.mark.dsl
def test_reversed_batches_are_copied() -> None:
    a, b, scale = half(2, 16, 64), half(2, 64, 32), np.float32(1.5) ** np.arange(32, dtype=np.float32).reshape(2, 16)
    scale = scale / scale.max()
    near(cutegen.matmul(a[::-1], b), a[::-1], b)
    near(cutegen.matmul(a, b[::-1]), a, b[::-1])
    near(cutegen.matmul(a, b, scale_a=scale[::-1]), a, b, "scale_m * x", scale_m=scale[::-1, :, None])
    columns = scale.reshape(1, 32)[:, ::-1]
    near(cutegen.matmul(a, b, scale_b=columns), a, b, "scale_n * x", scale_n=columns)


def test_an_empty_result_is_written_nowhere() -> None:
    for a, b in ((half(0, 4), half(4, 8)), (half(4, 8), half(8, 0)), (half(2, 0, 4), half(4, 8))):
        out = np.empty((*a.shape[:-1], b.shape[-1]), np.float16)
        assert cutegen.matmul(a, b, out=out) is out


@pytest.mark.parametrize("pitch", [0, 7])
def test_a_result_whose_rows_share_elements_is_refused(pitch: int) -> None:
    """All of them, or the last of one and the first of the next."""
    shared = np.lib.stride_tricks.as_strided(half(32), (4, 8), (2 * pitch, 2))
    with pytest.raises(OperandError, match=rf"out: found strides \({pitch}, 1\), with elements that share memory"):
        cutegen.matmul(half(4, 4), half(4, 8), out=shared)


@pytest.mark.dsl
def test_the_whole_formula_in_place_of_c() -> None:
    a, b, bias, residual = half(16, 64), half(64, 32), half(32), half(16, 32)
    c = half(16, 32)
    before = c.copy()
    out = cutegen.matmul(a, b, bias=bias, activation="relu", residual=residual, alpha=0.5, beta=2.0, c=c, out=c)
    assert out is c
    terms = {"bias_n": bias, "residual": residual, "c": before}
    near(c, a, b, "max(0.5 * x + 2 * c + bias_n, 0) + residual", **terms)


def test_explain_says_what_is_asked_what_is_copied_and_who_serves() -> None:
    said = cutegen.explain(half(20, 128)[:, ::2], half(32, 64).T, activation="gelu", bias=half(32), arch="h100")
    for part in (
        "f16, shape (20, 32)",
        "24x32x64, the bucket of M = 20: calls share kernels",
        "sm_90",
        "bias_n, gelu_erf",
        "contiguous in neither mode",
        "family sm80",
    ):
        assert part in said
    assert "remark" not in said
    assert "tcgen05, which" in cutegen.explain(half(64, 64), half(64, 64).T, arch="b200")
    by_tcgen05 = cutegen.explain(half(4096, 512), half(4096, 512).T, arch="b200")
    assert "family sm100" in by_tcgen05
    assert "has run on hardware" in " ".join(by_tcgen05.split())
    assert "is not used: torch" not in " ".join(by_tcgen05.split())
    assert "the result is empty" in cutegen.explain(half(0, 4), half(4, 4))
    assert "represents" not in cutegen.explain(half(64, 64), half(64, 64).T, arch="h100")
    with cutegen.matmul_settings(batch_invariant=True):
        said = cutegen.explain(half(20, 64), half(32, 64).T, arch="h100")
    assert "256x32x64, the bucket of M = 20: no row depends on the number of rows" in said


@pytest.mark.dsl
def test_prepare_builds_and_the_call_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    w = half(32, 64).T
    assert int(cutegen.prepare(half(1, 64), w, rows=np.array([9, 20, 24]))) == 1
    monkeypatch.setattr("cutegen.build.builder.compile_source", None)
    a = half(21, 64)
    near(cutegen.matmul(a, w), a, w)


def test_a_call_that_takes_hours_is_refused_with_how_long() -> None:
    huge = np.broadcast_to(np.float16(1), (32768, 32768))
    with pytest.raises(RequestError, match=r"found 32768x32768x32768, about .* hours on the CPU.*at most"):
        cutegen.matmul(huge, huge)


def test_a_call_that_takes_minutes_is_announced_and_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resolved = resolve(
        {name: (view_of(half(512, 512), name).form, 64) for name in "ab"}, Formula(), CallTarget("sm_80")
    )
    for seconds, said in ((1.0, []), (300.0, ["matmul: 512x512x512 takes about 5 minutes on the CPU"])):
        monkeypatch.setattr("cutegen.verify.cost_estimate.estimate_s", lambda *_, seconds=seconds: seconds)
        guard_cpu_time(resolved)
        assert [record.message for record in caplog.records] == said


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"a": [[1.0]]}, "operand a: found a list; expected a torch tensor or a NumPy array;"),
        ({"b": None}, "operand b: found a NoneType; expected a NumPy array, like a"),
        ({"out_dtype": "f99"}, "f99"),
        ({"out_dtype": 5}, "out_dtype: found 5; expected a type of NumPy, or one of f16, bf16"),
        ({"alpha": 1e300}, "operand alpha: found 1e\\+300; expected a number within the range of float32"),
        ({"alpha": "x"}, "alpha: found a str; expected a number"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises((OperandError, RequestError), match=match):
        cutegen.matmul(**{"a": half(8, 8), "b": half(8, 8), **arguments})


def test_switches_are_set_for_a_while_or_refused() -> None:
    with pytest.raises(RequestError, match="cpu_tensors: found \"gpu\"; expected 'torch' or 'executor'"):
        cutegen.matmul_settings(cpu_tensors="gpu")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="batch_invariant: found 1; expected False or True"):
        cutegen.matmul_settings(batch_invariant=1)  # type: ignore[arg-type]


def test_no_framework_is_imported_for_arrays() -> None:
    script = (
        "import sys, numpy as np, cutegen; a = np.ones((4, 8), np.float16); cutegen.explain(a, a.T); "
        "cutegen.matmul_settings(batch_invariant=True); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_explain_and_prepare_show_every_keyword_of_matmul_in_their_signatures() -> None:
    terms = [each for each in inspect.signature(cutegen.matmul).parameters.values() if each.kind is each.KEYWORD_ONLY]
    assert [each.name for each in terms] == list(Terms.__annotations__)
    of_pairs = {"pairs", "first"}  # passed on as one text with the activation
    seconds = ("scale_c", "scale_m", "scale_n")  # of `out` with quantize, and of pairs of factors
    assert Arguments._fields == ("a", "b", *(x for x in Terms.__annotations__ if x not in of_pairs), *seconds)
    for function, own in ((cutegen.explain, ["arch"]), (cutegen.prepare, ["rows", "arch", "backward", "progress"])):
        shown = [each for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
        assert shown[: len(terms)] == terms
        assert [each.name for each in shown[len(terms) :]] == own
        with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got an unexpected keyword argument 'biass'"):
            function(np.ones((2, 2), np.float16), np.ones((2, 2), np.float16), biass=1)  # type: ignore[call-arg]


@pytest.mark.dsl
@pytest.mark.slow
def test_a_quantized_result_is_that_of_torch_in_bytes() -> None:
    """NumPy has no 8-bit floats: values are bytes, also those of `out`, and of `cutegen.quantize`."""
    torch = pytest.importorskip("torch")
    a, b = half(20, 64), half(64, 200)
    values, factors = cutegen.matmul(a, b, quantize="e4m3")
    by_torch = cutegen.matmul(*(torch.from_numpy(x) for x in (a, b)), quantize="e4m3")
    assert (values.dtype, factors.shape, factors.strides) == (np.uint8, (20, 2), (4, 80))
    np.testing.assert_allclose(factors, by_torch[1].numpy(), rtol=2.0**-18)
    wide = torch.from_numpy(values).view(torch.float8_e4m3fn).float()
    # A step of e4m3 is an eighth at most; sums of 64 products differ by their order alone.
    assert bool(((wide - by_torch[0].float()).abs() <= 0.126 * wide.abs() + 2.0**-9).all())
    out = np.empty((20, 200), np.uint8), np.empty((2, 24), np.float32).T[:20]
    found = cutegen.matmul(a, b, quantize="e4m3", out=out)
    assert (found[0] is out[0], found[1] is out[1]) == (True, True)
    np.testing.assert_array_equal(out[0], values)
    np.testing.assert_array_equal(out[1], factors)
    ends = np.array([3, 11], np.int32)
    of_groups = cutegen.grouped_mm(a, np.stack([b, b]), offs=ends, quantize="e4m3")
    np.testing.assert_array_equal(of_groups[0][:11], values[:11])
    assert not of_groups[0][11:].any()
    assert not of_groups[1][11:].any()


def test_arrays_are_quantized_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = half(5, 200).astype(np.float32)
    for terms in ({}, {"block": (128, 128), "scale": "ue8m0"}, {"block": (1, 32), "scale": "ue8m0"}):
        values, factors = cutegen.quantize(x, **terms)
        of_torch = cutegen.quantize(torch.from_numpy(x), **terms)
        assert (values.dtype, values.shape) == (np.uint8, x.shape)
        np.testing.assert_array_equal(values, of_torch[0].view(torch.uint8).numpy())
        of_tensor = of_torch[1] if of_torch[1].dtype is torch.float32 else of_torch[1].view(torch.uint8)
        np.testing.assert_array_equal(factors, of_tensor.numpy())


def test_arrays_whose_kernels_do_not_quantize_are_refused() -> None:
    a = half(4, 16).astype(np.float32)
    with pytest.raises(OperandError, match=r"a: found f32 on sm_90, with quantize; expected 16-bit or 8-bit floats"):
        cutegen.matmul(a, a.T, quantize="e4m3")
