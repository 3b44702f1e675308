"""Factors of 8 bits: `cutegen.quantize` and `cutegen.scaled_mm` against NumPy, and kernels on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.dispatch.block_scales import levels  # noqa: E402
from cutegen.dispatch.model import spec_of  # noqa: E402
from cutegen.dispatch.request import Matrix  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from cutegen.pack.building import build_all, make_pack  # noqa: E402
from cutegen.pack.kernel_list import combinations, read_list  # noqa: E402
from cutegen.spec import Factors, Operand, Schedule, Tile, load_spec  # noqa: E402
from cutegen.support.toml_text import toml_value  # noqa: E402
from cutegen.torch_ops import eager  # noqa: E402
from cutegen.verify.error_bounds import UNIT, Bounded  # noqa: E402
from cutegen.verify.reference import decoded_words, float64  # noqa: E402
from tests.run.sm100_cases import Case, compiled  # noqa: E402
from tests.torch_ops.exact import close, scaled_product  # noqa: E402

SWIZZLED = {"swizzle_a": "SWIZZLE_32_4_4", "swizzle_b": "SWIZZLE_32_4_4"}
MX, NV = {"block": (1, 32), "scale": "ue8m0"}, {"block": (1, 16), "scale": "ue4m3", "dtype": "e2m1"}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def matrix(rows: int, columns: int) -> Tensor:
    """Normal numbers, of which each row has its own range."""
    return torch.randn(rows, columns) * torch.exp2(torch.randint(-8, 8, (rows, 1)).float())


def of_rows(factors: Tensor, rows: int, blocks: int) -> Any:
    """Factors in the order of rows and K, from their bytes in memory: by the layout's formula, an element at a time."""
    stored, atoms = factors.view(torch.uint8).numpy().ravel(), -(-blocks // 4)
    codes = np.empty((rows, blocks), np.uint8)
    for r, k in np.ndindex(codes.shape):
        codes[r, k] = stored[(r // 128 * atoms + k // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + k % 4]
    return codes


@pytest.mark.parametrize(("dtype", "most"), [("e4m3", 448), ("e5m2", 57344), ("e2m1", 6)])
def test_a_factor_of_mx_is_the_power_of_two_above_the_largest_of_32(dtype: Any, most: float) -> None:
    x = matrix(130, 200)
    values, factors = cutegen.quantize(x, **MX, dtype=dtype)
    codes = of_rows(factors, 130, 7).astype(np.float64) - 127
    wide = np.pad(x.numpy(), ((0, 0), (0, 24))).reshape(130, 7, 32)
    largest = np.maximum(np.abs(wide).max(-1), np.float32(1e-4)) / np.float32(most)
    assert np.array_equal(codes, np.ceil(np.log2(largest.astype(np.float64))))
    assert factors.dtype == torch.float8_e8m0fnu
    scaled = (wide / np.exp2(codes)[..., None]).reshape(130, 224)[:, :200]
    found = float64(values.view(torch.uint8), "e2m1x2").numpy() if dtype == "e2m1" else values.double().numpy()
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(scaled), 2.0**-14))) - {"e4m3": 3, "e5m2": 2, "e2m1": 1}[dtype])
    assert (np.abs(found - scaled) <= np.maximum(step, {"e2m1": 0.5}.get(dtype, 2.0**-9)) / 2).all()


def test_values_of_4_bits_are_the_nearest_and_ties_go_to_even_codes() -> None:
    x = torch.linspace(-7, 7, 113).repeat(2)[: 7 * 32].reshape(1, -1)
    x[0, ::32] = 6.0  # each block's factor is 1
    values, factors = cutegen.quantize(x.clamp(-6, 6), **MX, dtype="e2m1")
    assert of_rows(factors, 1, 7).tolist() == [[127] * 7]
    found = float64(values.view(torch.uint8), "e2m1x2").numpy()[0]
    for value, asked in zip(found, x.clamp(-6, 6)[0].tolist(), strict=True):
        distances = np.abs(E2M1 - abs(asked))
        nearest = np.flatnonzero(distances == distances.min())
        code = nearest[0] if len(nearest) == 1 else nearest[nearest % 2 == 0][0]
        assert abs(value) == E2M1[code]
        assert value == 0 or np.sign(value) == np.sign(asked)


def test_nvf4_has_an_e4m3_of_16_and_one_factor_of_the_tensor() -> None:
    x = matrix(5, 64)
    values, (factors, of_tensor) = cutegen.quantize(x, **NV)
    assert of_tensor == x.abs().max() / np.float32(6 * 448)
    wanted = (x.reshape(5, 4, 16).abs().amax(-1) / 6 / of_tensor).clamp(2.0**-6, 448).to(torch.float8_e4m3fn)
    assert np.array_equal(of_rows(factors, 5, 4), wanted.view(torch.uint8).numpy())
    assert (values.dtype, values.shape) == (torch.float4_e2m1fn_x2, (5, 32))


def test_a_nan_is_of_its_block_alone() -> None:
    x = torch.ones(2, 64)
    x[1, 3] = torch.nan
    values, factors = cutegen.quantize(x, **MX)
    assert of_rows(factors, 2, 2).tolist() == [[119, 119], [255, 119]]  # 2^-8, and NaN
    ones, of_ones = cutegen.quantize(torch.ones(1, 64), **MX)
    y = cutegen.scaled_mm(values, ones.T, factors, "BlockWise1x32", of_ones, "BlockWise1x32", **SWIZZLED)
    assert y[0].item() == 64
    assert y[1].isnan().all()


def decoded(values: Tensor, factors: Any, block: int) -> Any:
    """The values that a quantized matrix stands for, in float64, by the decoders of the reference of kernels."""
    of_blocks, of_tensor = factors if isinstance(factors, tuple) else (factors, torch.tensor(1.0))
    packed = values.dtype == torch.float4_e2m1fn_x2
    wide = float64(values.view(torch.uint8), "e2m1x2") if packed else values.double()
    rows, k = wide.shape
    words = of_blocks.view(torch.int32).reshape(-(-rows // 128), -1).numpy()
    each = decoded_words(words, "ue8m0x4" if block == 32 else "ue4m3x4")[:rows].repeat(block, 1)[:, :k]
    return wide.numpy() * each * of_tensor.double().item()


def product(a: Tensor, of_a: Any, b: Tensor, of_b: Any, block: int) -> Bounded:
    """The product of what quantized (M, K) and (N, K) stand for, from their bytes."""
    return scaled_product(decoded(a, of_a, block), decoded(b, of_b, block))


def plus(exact: Bounded, bias: Tensor) -> Bounded:
    """The product and a bias, of which an addition in f32 is off by as much again."""
    value = exact.value + bias.double()
    return Bounded(value, exact.error + UNIT * (value.abs() + exact.error))


@pytest.mark.parametrize("mistake", ["one k is dropped", "a row has the factors of its neighbour"])
@pytest.mark.parametrize(("given"), [MX, MX | {"dtype": "e2m1"}, NV], ids=["mxf8", "mxf4", "nvf4"])
def test_bounds_tell_wrong_products_from_right_ones(mistake: str, given: dict[str, Any]) -> None:
    """Also in the row of the least range, which a bound on the scale of the largest would not see."""
    block = given["block"][1]
    (a, of_a), (b, of_b) = (cutegen.quantize(matrix(rows, 200), **given) for rows in (37, 72))
    x, y = decoded(a, of_a, block), decoded(b, of_b, block)
    exact, least = scaled_product(x, y), int(np.abs(x).max(1).argmin())
    close((torch.from_numpy(x) @ torch.from_numpy(y).T).float(), exact)
    if mistake == "one k is dropped":
        x[least, np.abs(x[least]).argmax()] = 0.0
    else:
        x[least, :block] *= 2.0
    with pytest.raises(AssertionError, match=rf"the first at \({least}, "):
        close((torch.from_numpy(x) @ torch.from_numpy(y).T).float(), exact)


@pytest.mark.parametrize(
    ("recipe", "given"),
    [("BlockWise1x32", MX), ("BlockWise1x32", MX | {"dtype": "e2m1"}), ("BlockWise1x16", NV)],
)
def test_a_product_is_that_of_the_scaled_values(recipe: str, given: dict[str, Any]) -> None:
    (a, of_a), (b, of_b) = (cutegen.quantize(matrix(rows, 200), **given) for rows in (37, 72))
    recipes = [recipe, "TensorWise"] if recipe == "BlockWise1x16" else recipe
    bias = torch.randn(72)
    found = cutegen.scaled_mm(a, b.T, of_a, recipes, of_b, recipes, bias=bias, output_dtype=torch.float32, **SWIZZLED)
    close(found, plus(product(a, of_a, b, of_b, given["block"][1]), bias))
    assert cutegen.scaled_mm(a, b.T, of_a, recipes, of_b, recipes, **SWIZZLED).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.dsl
@pytest.mark.parametrize(("name", "given"), [("sm100_mxf8_tn", MX), ("sm100_nvf4_tn", NV)])
def test_a_kernel_computes_the_same_from_the_same_bytes(name: str, given: dict[str, Any], kernels: Cache) -> None:
    """What `quantize` makes is what kernels take, as words."""
    spec = load_spec(name)
    problem = replace(spec.problem, c=Operand("f32", "n"))
    spec = replace(spec, tile=Tile((128, 64, 128), 2), problem=problem, schedule=Schedule())
    m, n, k = 40, 72, 512
    (a, of_a), (b, of_b) = (cutegen.quantize(matrix(rows, k), **given) for rows in (m, n))
    _, kernel = compiled(Case(spec, m, n, k, None), "sm_100", kernels)
    (words_a, words_b), tensors = (
        [each[i] if isinstance(each, tuple) else each for each in (of_a, of_b)] for i in (0, 1)
    )
    packed = given is NV
    values = [x.view(torch.uint8) if packed else x for x in (a, b)]
    extras = {"scale_m": tensors[0].reshape(1), "scale_n": tensors[1].reshape(1)} if packed else {}
    found = kernel(
        values[0],
        values[1].T,
        scale_a=words_a.view(torch.int32).reshape(1, -1),
        scale_b=words_b.view(torch.int32).reshape(1, -1).T,
        **extras,
    )
    close(found, product(a, of_a, b, of_b, given["block"][1]))


@pytest.mark.slow
@pytest.mark.dsl
def test_calls_take_kernels_with_such_factors_from_a_pack(
    kernels: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = ["sm100_mxf8_tn", "sm100_nvf4_tn"]
    make_pack(tmp_path / "scaled.cutepack", build_all(combinations(specs, [None], ["sm_100"]), kernels, jobs=1))
    monkeypatch.setattr("cutegen.build.builder.compile_source", None)  # nothing is compiled
    for given, another in ((MX, NV), (NV, MX)):
        (a, of_a), (b, of_b) = (cutegen.quantize(matrix(8, 256), **given) for _ in "ab")
        with cutegen.load_pack(tmp_path / "scaled.cutepack") as pack, cutegen.matmul_settings(cpu_tensors="executor"):
            found = cutegen.matmul(a, b.T, scale_a=of_a, scale_b=of_b)
            said = " ".join(cutegen.explain(a, b.T, scale_a=of_a, scale_b=of_b, arch="b200").split())
            assert f"{specs[given is NV]}, made for every problem" in said
            call = eager.Call(a, b.T, scale_a=levels(of_a, of_b)[0][0], scale_b=levels(of_a, of_b)[0][1])
            request = eager.resolved_call(call).request
            other = Matrix(*(("ue4m3", "k", 16, (1, 16)) if another is NV else ("ue8m0", "k", 16, (1, 32))))
            assert pack.answer(replace(request, scale_a=other)).open is None
        close(found, product(a, of_a, b, of_b, given["block"][1]))


def test_lists_of_calls_keep_such_factors(tmp_path: Path) -> None:
    """What CUTEGEN_RECORD writes, and `cutegen pack` and `cutegen tune` read."""
    (a, of_a), (b, of_b) = (cutegen.quantize(matrix(rows, 256), **NV) for rows in (40, 72))
    scales, seconds = levels(of_a, of_b)
    call = eager.Call(a, b.T, scale_a=scales[0], scale_b=scales[1], **seconds)
    request = eager.resolved_tensors(call.tensors, call.formula, None, "b200").request
    (tmp_path / "calls.toml").write_text(f"[[kernel]]\nrequest = {toml_value(request.as_json())}\n")
    (found,) = read_list(tmp_path / "calls.toml", ())
    assert found.spec == spec_of(request)


def test_what_has_no_such_factors_is_refused() -> None:
    (a, of_a), (b, of_b) = (cutegen.quantize(matrix(8, 64), **MX) for _ in "ab")
    x32 = "BlockWise1x32"
    for arch, target in (("a100", "sm_80"), ("h100", "sm_90"), ("sm_120", "sm_120")):
        with pytest.raises(OperandError, match=f"scale_a: found factors of 8 bits on {target}; expected sm_100 or a"):
            cutegen.explain(a, b.T, scale_a=of_a, scale_b=of_b, arch=arch)
    with pytest.raises(RequestError, match="found BlockWise1x16 with BlockWise1x32"):
        cutegen.scaled_mm(a, b.T, of_a, x32, of_b, "BlockWise1x16", **SWIZZLED)
    with pytest.raises(OperandError, match="8 x 2 in NO_SWIZZLE for BlockWise1x32 of 8 x 64 values"):
        cutegen.scaled_mm(a, b.T, of_a, x32, of_b, x32)
    with pytest.raises(OperandError, match="float8_e8m0fnu"):
        cutegen.scaled_mm(a, b.T, of_a.view(torch.uint8), x32, of_b, x32, **SWIZZLED)
    with pytest.raises(RequestError, match="with scale='ue8m0' and dtype 'e4m3' or 'e5m2' or 'e2m1'"):
        cutegen.quantize(matrix(8, 64), (1, 32))
    with pytest.raises(OperandError, match="C a multiple of 2"):
        cutegen.quantize(matrix(8, 63), **NV)


@pytest.mark.parametrize("arch", ["b200", "b300"])
@pytest.mark.parametrize(
    ("recipe", "given"), [("ue8m0", MX), ("ue8m0", MX | {"dtype": "e2m1"}), ("ue4m3", NV)], ids=["mx8", "mx4", "nv4"]
)
def test_a_kernel_is_chosen_for_the_bytes_in_place(recipe: str, given: dict[str, Any], arch: str) -> None:
    """The request has the factors, and placements their memory: words of atoms along the rows, one for all values."""
    (a, of_a), (b, of_b) = (cutegen.quantize(matrix(rows, 4096), **given) for rows in (300, 640))
    said = cutegen.explain(a, b.T, scale_a=of_a, scale_b=of_b, arch=arch)
    assert f"{recipe} for blocks of 1 x {given['block'][1]}, in atoms of 128 rows by 4: by tensor map" in said
    assert "family sm100, CTA tile" in " ".join(said.split())
    assert "us estimated" in " ".join(said.split())
    assert "no kernel by tcgen05.mma has run on hardware" in said
    assert "copied" not in said
    scales, seconds = levels(of_a, of_b)
    call = eager.Call(a, b.T, scale_a=scales[0], scale_b=scales[1], **seconds)
    found = eager.resolved_tensors(call.tensors, call.formula, None, arch)
    along_k = 4096 // given["block"][1] // 4 * 128
    forms = {name: (placed.form.shape, placed.form.strides) for name, placed in found.placements.items()}
    assert forms["scale_a"] == ((3, along_k), (along_k, 1))
    assert forms["scale_b"] == ((along_k, 5), (1, along_k))
    assert [forms[name] for name in seconds] == [((1,), (1,))] * len(seconds)
    spec = spec_of(found.request)
    assert (spec.problem.scale_a, spec.problem.scale_b) == (Factors(given["block"], recipe),) * 2  # type: ignore[arg-type]
    assert spec.epilogue.ops == (("scale_m", "scale_n") if seconds else None)


def test_a_call_is_resolved_for_other_numbers_of_rows() -> None:
    """As `prepare(rows=)` does."""
    (a, of_a), (b, of_b) = (cutegen.quantize(matrix(rows, 256), **MX) for rows in (8, 72))
    call = eager.Call(a, b.T, scale_a=of_a, scale_b=of_b)
    found = eager.resolved_tensors(call.tensors, call.formula, None, "b200", rows=300)
    assert (found.called.m, found.placements["scale_a"].form.shape) == (300, (3, 2 * 128))
    assert not found.copies


def test_factors_that_no_kernel_reads_in_place_are_copied() -> None:
    a, of_a = cutegen.quantize(matrix(40, 256), **MX)
    b, of_b = cutegen.quantize(matrix(72, 256), **MX)
    odd = torch.empty(len(of_a) + 1, dtype=torch.uint8)[1:].copy_(of_a.view(torch.uint8)).view(of_a.dtype)
    apart = torch.empty(len(of_b), 2, dtype=torch.uint8)[:, 0].copy_(of_b.view(torch.uint8)).view(of_b.dtype)
    said = cutegen.explain(a, b.T, scale_a=odd, scale_b=apart, arch="b200")
    assert said.count("it is not contiguous, or its address is no multiple of 16") == 2
    wanted = cutegen.matmul(a, b.T, scale_a=of_a, scale_b=of_b)
    assert torch.equal(cutegen.matmul(a, b.T, scale_a=odd, scale_b=apart), wanted)


@pytest.mark.slow
@pytest.mark.dsl
def test_copies_and_batches_are_what_kernels_read(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of A is more rows if its matrices are whole atoms, else a batch; B's factors are of all."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    b, of_b = cutegen.quantize(matrix(72, 128), **MX)
    odd = torch.empty(len(of_b) + 1, dtype=torch.uint8)[1:].copy_(of_b.view(torch.uint8)).view(of_b.dtype)
    for rows, shape in ((128, (2, 128)), (40, (2, 1, 128))):
        a, of_a = cutegen.quantize(torch.randn(2, rows, 128), **MX)
        call = eager.Call(a, b.T, scale_a=of_a, scale_b=odd, out_dtype=torch.float32)
        assert eager.resolved_call(call).placements["scale_a"].form.shape == shape
        with cutegen.matmul_settings(cpu_tensors="executor"):
            found = cutegen.matmul(a, b.T, scale_a=of_a, scale_b=odd, out_dtype="f32")
        for i in (0, 1):
            close(found[i], product(a[i], of_a[i], b, of_b, 32))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scale_a": "b", "scale_b": "a"}, r"scale_a: found shape \(1024,\); expected 128 x 4 factors in atoms of"),
        ({"scale_a": None}, "scale_a: found none; expected ue8m0, as scale_b has: an instruction multiplies by both"),
        ({"scale_b": "f32"}, "scale_b: found dtype f32; expected ue8m0"),
        ({"scale_a": "pair of three"}, "scale_a: found 3 tensors"),
        ({"scale_a": "pair of f16"}, "scale_a: found f16 for all values; expected f32"),
        ({"a": "a in f16", "b": "b in f16"}, "a: found dtype f16; expected e2m1x2 or e4m3 or e5m2, which instr"),
        ({"scale_a": "e4m3", "scale_b": "e4m3"}, "a: found dtype e4m3; expected e2m1x2, which instructions multiply"),
        ({"a": "e2m1", "b": "e2m1", "scale_a": None, "scale_b": None}, "a: found dtype e2m1x2; expected scale_a and"),
        ({"scale_a": "pair of f32", "scale_b": None}, "scale_a: found a pair; expected one tensor"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_refused(change: dict[str, Any], said: str) -> None:
    (a, of_a), (b, of_b) = cutegen.quantize(matrix(8, 64), **MX), cutegen.quantize(matrix(130, 64), **MX)
    f32 = torch.ones(1)
    known = {
        None: None, "a": of_a, "b": of_b, "f32": f32, "e4m3": of_a.view(torch.float8_e4m3fn),
        "a in f16": a.half(), "b in f16": b.half(),
        "pair of three": (of_a, f32, f32), "pair of f16": (of_a, f32.half()), "pair of f32": (f32, f32),
    }  # fmt: skip
    given = {"a": a, "b": b, "scale_a": of_a, "scale_b": of_b}
    pairs = a.view(torch.float4_e2m1fn_x2)
    given |= {name: pairs if asked == "e2m1" else known[asked] for name, asked in change.items()}
    with pytest.raises(OperandError, match=said):
        cutegen.matmul(given.pop("a"), given.pop("b").T, **given)


@pytest.mark.slow
def test_what_stands_for_tensors_has_the_same_ops() -> None:
    """Fake tensors, `torch.compile` and opcheck of the ops, whose second factors are their last arguments."""
    (a, (of_a, all_a)), (b, (of_b, all_b)) = (cutegen.quantize(matrix(rows, 64), **NV) for rows in (40, 72))
    wanted = cutegen.matmul(a, b.T, scale_a=(of_a, all_a), scale_b=(of_b, all_b))
    made = torch.ops.cutegen.matmul(a, b.T, *[None] * 6, of_a, of_b, None, all_a, all_b)
    assert torch.equal(made, wanted)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in (a, b, of_a, of_b, all_a, all_b)]
        fake = torch.ops.cutegen.matmul(fakes[0], fakes[1].T, *[None] * 6, fakes[2], fakes[3], None, *fakes[4:])
    assert (fake.shape, fake.dtype) == (wanted.shape, wanted.dtype)
    values, factors = cutegen.quantize(matrix(40, 64), **MX)
    arguments = (values, values.T, *[None] * 6, factors, factors)
    torch.library.opcheck(torch.ops.cutegen.matmul.default, arguments, test_utils="test_faketensor")
    recipe = ["BlockWise1x16", "TensorWise"]

    @torch.compile(backend="eager", fullgraph=True)
    def product(a: Tensor, b: Tensor, of_a: Any, of_b: Any) -> Tensor:
        return cutegen.scaled_mm(a, b.T, of_a, recipe, of_b, recipe, **SWIZZLED)

    assert torch.equal(product(a, b, [of_a, all_a], [of_b, all_b]), wanted)


def test_the_result_of_a_product_of_blocks_of_32_is_quantized() -> None:
    (a, of_a), (b, of_b) = cutegen.quantize(matrix(40, 96), **MX), cutegen.quantize(matrix(136, 96), **MX)
    terms: dict[str, Any] = SWIZZLED
    recipe = "BlockWise1x32"
    values, factors = cutegen.scaled_mm(a, b.T, of_a, recipe, of_b, recipe, **terms, quantize="e4m3")
    wide = cutegen.scaled_mm(a, b.T, of_a, recipe, of_b, recipe, **terms, output_dtype=torch.float32)
    wanted, of_wanted = cutegen.quantize(wide)
    assert torch.equal(values.view(torch.uint8), wanted.view(torch.uint8))
    assert torch.equal(factors, of_wanted)
