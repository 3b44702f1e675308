"""Factors of blocks in calls: torch's recipes and orientations, the operand's own order, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.dispatch.model import spec_of  # noqa: E402
from cutegen.dispatch.provider import PACK, Answer  # noqa: E402
from cutegen.dispatch.providers import providers  # noqa: E402
from cutegen.dispatch.request import Matrix, Request  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from cutegen.matmul import Arguments, _arguments  # noqa: E402
from cutegen.pack.building import build_all, make_pack  # noqa: E402
from cutegen.pack.kernel_list import combinations, read_list  # noqa: E402
from cutegen.spec import Factors  # noqa: E402
from cutegen.support.toml_text import toml_value  # noqa: E402
from tests.torch_ops.exact import close as assert_close  # noqa: E402
from tests.torch_ops.exact import scaled_product  # noqa: E402

BLOCK, E4M3 = 128, torch.float8_e4m3fn
M, N, K = 72, 264, 400
OF_ROWS, OF_BLOCKS = "BlockWise1x128", "BlockWise128x128"
PAIRS = ((OF_ROWS, OF_BLOCKS), (OF_BLOCKS, OF_ROWS), (OF_ROWS, OF_ROWS), (OF_BLOCKS, OF_BLOCKS))


@pytest.fixture(params=["torch", pytest.param("executor", marks=[pytest.mark.dsl, pytest.mark.slow])])
def computed_by(request: pytest.FixtureRequest, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors=request.param):
        yield request.param


def blocks(extent: int) -> int:
    return -(-extent // BLOCK)


def rows_of(recipe: str) -> int:
    return 1 if recipe == OF_ROWS else BLOCK


def factors(rows: int, recipe: str, k: int = K) -> Tensor:
    """Factors of (rows, K), in that order, of both signs."""
    return torch.randn(-(-rows // rows_of(recipe)), blocks(k))


def as_torch_has_them(scale: Tensor, recipe: str) -> Tensor:
    """Factors (rows, K) as torch orients them: those of rows M or N first, of blocks K first and padded with NaN."""
    if recipe == OF_ROWS:
        return scale.T.contiguous().T
    along_k = -(-scale.shape[1] // 4) * 4
    padded = torch.full((scale.shape[0], along_k), torch.nan)
    padded[:, : scale.shape[1]] = scale
    return padded.T


def dequantized(x: Tensor, scale: Tensor) -> Tensor:
    rows = BLOCK if scale.shape[0] < x.shape[0] else 1
    return (
        x.double() * scale.double().repeat_interleave(rows, 0).repeat_interleave(BLOCK, 1)[: x.shape[0], : x.shape[1]]
    )


def close(found: Tensor, exact: Tensor, of: Tensor, w: Tensor) -> bool:
    """Rounding of the result, and what tensor cores cut of sums: 13 bits of each instruction's of 32 products."""
    cut = 2.0**-11 * of.shape[1] ** 0.5 * of.norm(dim=1)[:, None] * w.norm(dim=1) / of.shape[1] ** 0.5
    return bool(((found.double() - exact).abs() <= torch.finfo(found.dtype).eps / 2 * exact.abs() + cut).all())


@pytest.mark.parametrize(("recipe_a", "recipe_b"), PAIRS)
@pytest.mark.parametrize("names", ["strings", "enums"])
def test_every_pair_of_recipes_takes_factors_as_torch_has_them(
    recipe_a: str, recipe_b: str, names: str, computed_by: str
) -> None:
    if names == "enums" and not hasattr(functional, "ScalingType"):
        pytest.skip("this torch has no ScalingType")
    x, w, bias = torch.randn(M, K).to(E4M3), torch.randn(N, K).to(E4M3), torch.randn(N)
    of_x, of_w = factors(M, recipe_a), factors(N, recipe_b)
    a, b = (getattr(functional.ScalingType, each) if names == "enums" else each for each in (recipe_a, recipe_b))
    scale_a = as_torch_has_them(of_x, recipe_a)
    scale_b = as_torch_has_them(of_w, recipe_b)
    found = cutegen.scaled_mm(x, w.T, scale_a, a, scale_b, b, bias=bias, activation="silu")
    wide, weights = dequantized(x, of_x), dequantized(w, of_w)
    assert found.dtype is torch.bfloat16
    assert close(found, functional.silu(wide @ weights.T + bias.double()), wide, weights)


@pytest.mark.parametrize("layout", ["rows", "columns", "odd", "sliced"])
def test_matmul_reads_factors_of_any_strides_in_the_order_of_their_operand(layout: str, computed_by: str) -> None:
    x, w = torch.randn(M + 1, K).to(E4M3), torch.randn(N, K).to(E4M3)
    of_x, of_w = factors(M + 1, OF_ROWS), factors(N, OF_BLOCKS)
    forms: dict[str, Callable[[Tensor], Tensor]] = {
        "rows": Tensor.contiguous,
        "columns": lambda s: s.T.contiguous().T,
        "odd": lambda s: functional.pad(s, (1, 2), value=torch.nan)[:, 1:-2],
        "sliced": lambda s: s.repeat_interleave(2, 1)[:, ::2],
    }
    scale_a, scale_b = forms[layout](of_x), forms[layout](of_w).T
    found = cutegen.matmul(x, w.T, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.float32)
    wide, weights = dequantized(x, of_x), dequantized(w, of_w)
    assert close(found, wide @ weights.T, wide, weights)


def test_operands_along_other_modes_are_copied_along_k(computed_by: str) -> None:
    """Wgmma multiplies 8-bit floats along K; `torch.nn.functional.scaled_mm` refuses the others."""
    x, w = torch.randn(80, K).to(E4M3), torch.randn(272, K).to(E4M3)
    of_x, of_w = factors(80, OF_ROWS), factors(272, OF_BLOCKS)
    a, b = x.T.contiguous().T, w.T.contiguous()
    found = cutegen.scaled_mm(a, b, of_x, OF_ROWS, of_w.T, OF_BLOCKS)
    assert torch.equal(found, cutegen.scaled_mm(x, w.T, of_x, OF_ROWS, of_w.T, OF_BLOCKS))
    for terms in ({"scale_a": of_x, "scale_b": of_w.T}, {"quantize": "e4m3"}):
        call = _arguments("explain", a, b, **terms)
        copies = call.resolved(call.tensors(), "h100").copies
        assert {copies[name] for name in "ab"} == {"its elements of 8 bits are multiplied along K"}
        assert not {"a", "b"} & call.resolved(call.tensors(), "b200").copies.keys()


def test_pairs_of_columns_are_those_of_matmul() -> None:
    x, w = torch.randn(M, K).to(E4M3), torch.randn(256, K).to(E4M3)
    of_x, of_w = factors(M, OF_ROWS), factors(256, OF_BLOCKS)
    pairs: dict[str, Any] = {"activation": "swiglu", "pairs": "halves", "first": "up", "quantize": "e4m3"}
    found = cutegen.scaled_mm(x, w.T, of_x, OF_ROWS, of_w.T, OF_BLOCKS, **pairs)
    wanted = cutegen.matmul(x, w.T, scale_a=of_x, scale_b=of_w.T, **pairs)
    assert found[0].shape == (M, 128)
    assert torch.equal(found[0].float(), wanted[0].float())
    assert torch.equal(found[1], wanted[1])


def test_a_batch_has_its_own_factors(computed_by: str) -> None:
    x, w = torch.randn(2, 36, K).to(E4M3), torch.randn(N, K).to(E4M3)
    of_x, of_w = torch.randn(2, 36, blocks(K)), factors(N, OF_BLOCKS)
    found = cutegen.matmul(x, w.T, scale_a=of_x, scale_b=of_w.T)
    weights = dequantized(w, of_w)
    for i in range(2):
        wide = dequantized(x[i], of_x[i])
        assert close(found[i], wide @ weights.T, wide, weights)


def test_shards_of_a_layer_have_slices_of_its_factors(computed_by: str) -> None:
    """Of K from a block on, whatever its end; of columns; with one row, or none."""
    x, w = torch.randn(3, K).to(E4M3), torch.randn(N, K).to(E4M3)
    of_x, of_w = factors(3, OF_ROWS), factors(N, OF_BLOCKS)
    wide, weights = dequantized(x, of_x), dequantized(w, of_w)
    shards = [(slice(3), slice(N), slice(256, 400)), (slice(3), slice(N), slice(128, 288))]
    shards += [(slice(3), slice(128, N), slice(K)), (slice(1, 2), slice(N), slice(K)), (slice(0), slice(N), slice(K))]
    for rows, columns, k in shards:
        a, b = x[rows, k], w[columns, k]
        of_k = slice(k.start and k.start // BLOCK, -(-(k.stop or K) // BLOCK))
        scales = of_x[rows, of_k], of_w[columns.start and columns.start // BLOCK :, of_k].T
        found = cutegen.scaled_mm(a, b.T, scales[0], OF_ROWS, scales[1], OF_BLOCKS)
        own, own_weights = wide[rows, k], weights[columns, k]
        assert close(found, own @ own_weights.T, own, own_weights)


@pytest.mark.dsl
def test_numpy_arrays_are_multiplied_by_the_executor(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    float8 = pytest.importorskip("ml_dtypes").float8_e4m3fn
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    x, w, of_x, of_w = torch.randn(8, 256), torch.randn(8, 256), factors(8, OF_ROWS, 256), factors(8, OF_BLOCKS, 256)
    a, b = (each.numpy().astype(float8) for each in (x, w))
    found = cutegen.scaled_mm(a, b.T, of_x.numpy(), OF_ROWS, of_w.T.numpy(), OF_BLOCKS, output_dtype="f32")
    wide, weights = dequantized(x.to(E4M3), of_x), dequantized(w.to(E4M3), of_w)
    assert close(torch.from_numpy(found), wide @ weights.T, wide, weights)


def test_bits_of_numpy_are_integers_which_have_no_factors() -> None:
    x, w = np.ones((8, 256), np.uint8), np.ones((8, 256), np.uint8)
    with pytest.raises(OperandError, match="scale_a: found factors of blocks of a, of dtype u8"):
        cutegen.matmul(x, w.T, scale_a=np.ones((8, 2), np.float32), scale_b=np.ones((2, 8), np.float32))


def of_request(x: Tensor, w: Tensor, **terms: Any) -> Request:
    call = Arguments(x, w.T, **terms)
    return call.resolved(call.tensors(), "h100").request


def test_requests_say_the_blocks_and_make_specs_of_them() -> None:
    x, w = torch.empty(64, 512, dtype=E4M3, device="meta"), torch.empty(256, 512, dtype=E4M3, device="meta")
    scales = {"scale_a": torch.empty(64, 4, device="meta"), "scale_b": torch.empty(2, 4, device="meta").T}
    request = of_request(x, w, **scales)
    assert request.name == "matmul_e4m3_tn_1x128_128x128"
    assert Request.from_json(request.as_json(), "here") == request
    problem = spec_of(request).problem
    assert problem.scale_a == Factors((1, BLOCK), major="k")
    assert problem.scale_b == Factors((BLOCK, BLOCK), major="k")
    assert "scale_a" not in of_request(x, w).as_json()
    said = cutegen.explain(x, w.T, arch="h100", **scales)
    assert "f32 for blocks of 1 x 128" in said
    assert "family sm90" in said


def test_a_blackwell_has_kernels_for_every_pair_of_recipes() -> None:
    """By family sm100, of which no kernel has run on hardware; others scale no sums."""
    x, w = torch.empty(64, 512, dtype=E4M3, device="meta"), torch.empty(256, 512, dtype=E4M3, device="meta")
    for of_x, of_w in PAIRS:
        scale_a = torch.empty(blocks(512), -(-64 // rows_of(of_x)), device="meta").T
        scale_b = torch.empty(-(-256 // rows_of(of_w)), blocks(512), device="meta").T
        if of_w == OF_ROWS:
            scale_b = torch.empty(blocks(512), 256, device="meta")
        if of_x == OF_BLOCKS:
            scale_a = torch.empty(1, blocks(512), device="meta")
        for arch in ("b200", "b300"):
            said = cutegen.explain(x, w.T, arch=arch, scale_a=scale_a, scale_b=scale_b)
            assert "family sm100, CTA tile 128x" in said
            with cutegen.matmul_settings(family="tried"):
                said = cutegen.explain(x, w.T, arch=arch, scale_a=scale_a, scale_b=scale_b)
            assert "family sm100" not in said


@pytest.mark.parametrize(
    ("strides", "align", "major"),
    [((5, 1), 4, "k"), ((1, 65), 4, "m"), ((6, 1), 4, "k"), ((8, 1), 16, "k"), ((1, 64), 16, "m")],
)
def test_factors_of_any_leading_stride_are_read_in_place(strides: tuple[int, int], align: int, major: str) -> None:
    x, w = torch.empty(64, 512, dtype=E4M3), torch.empty(256, 512, dtype=E4M3)
    of_x, of_w = torch.empty_strided((64, 4), strides), torch.empty(2, 4)
    call = Arguments(x, w.T, scale_a=of_x, scale_b=of_w.T)
    resolved = call.resolved(call.tensors(), "h100")
    assert resolved.copies == {}
    assert resolved.request.scale_a == Matrix("f32", major, align, (1, BLOCK))
    assert spec_of(resolved.request).problem.scale_a == Factors(
        (1, BLOCK), major=major, align=None if align == 16 else 4
    )


def test_factors_of_which_no_mode_is_contiguous_are_copied() -> None:
    x, w = torch.empty(64, 512, dtype=E4M3), torch.empty(256, 512, dtype=E4M3)
    call = Arguments(x, w.T, scale_a=torch.empty_strided((64, 4), (8, 2)), scale_b=torch.empty(2, 4).T)
    assert call.resolved(call.tensors(), "h100").copies == {"scale_a": "no kernel reads its strides"}


class BoxesAlone:
    """An open pack whose kernels read factors by tensor maps, and whose kernel nobody opens."""

    name = "the pack of boxes"

    def answer(self, request: Request) -> Answer:
        boxes = all(x is None or x.align_bytes == 16 for x in (request.scale_a, request.scale_b))
        return Answer("for boxes", lambda: pytest.fail("opened")) if boxes else Answer("none reads such factors")


@pytest.fixture
def boxes_alone() -> Iterator[None]:
    providers.register(PACK, pack := BoxesAlone())
    yield
    providers.withdraw(pack)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.usefixtures("boxes_alone")
def test_factors_are_copied_for_a_pack_without_a_kernel_of_their_strides(grouped: bool) -> None:
    """Nothing is compiled then. Without such a pack, or with one that has the kernel, they are read in place."""
    x, w = torch.empty(64, 512, dtype=E4M3, device="meta"), torch.empty(2, 256, 512, dtype=E4M3, device="meta")
    of_x, of_w = torch.empty_strided((64, 4), (5, 1), device="meta"), torch.empty(2, 2, 4, device="meta")
    scales: dict[str, Any] = {"scale_a": of_x, "scale_b": of_w.mT if grouped else of_w[0].T}
    terms: dict[str, Any] = {"offs": torch.empty(2, dtype=torch.int32, device="meta")} if grouped else {}
    b = w.mT if grouped else w[0].T
    said = cutegen.explain(x, b, arch="h100", **scales, **terms)
    assert said.count("no kernel of an open pack reads its strides") == 1
    assert re.search(r"scale_a +f32 for blocks of 1 x 128 m-major, 16-byte aligned: by tensor map", said)
    assert "the pack of boxes: for boxes" in said
    aligned = {**scales, "scale_a": torch.empty(64, 4, device="meta")}
    assert "copied" not in cutegen.explain(x, b, arch="h100", **aligned, **terms)
    providers.register(PACK, lanes := AnyStride())
    try:
        in_place = cutegen.explain(x, b, arch="h100", **scales, **terms)
    finally:
        providers.withdraw(lanes)
    assert "copied" not in in_place
    assert "by lanes of a warp" in in_place


class AnyStride(BoxesAlone):
    """An open pack with kernels for all requests."""

    name = "the pack of lanes"

    def answer(self, request: Request) -> Answer:
        return Answer("for lanes", lambda: pytest.fail("opened"))


@pytest.mark.parametrize("recipe", [OF_ROWS, OF_BLOCKS])
def test_kernels_of_a_blackwell_read_copies_of_factors_without_a_tensor_map(recipe: str) -> None:
    """A copy has the mode of the rows contiguous if each row has its factor, else K, as specs have them."""
    x, w = torch.empty(640, 640, dtype=E4M3), torch.empty(256, 640, dtype=E4M3)
    of_x, of_w = torch.empty(640 // rows_of(recipe), 5), torch.empty(2, 5)
    call = Arguments(x, w.T, scale_a=of_x, scale_b=of_w.T)
    resolved = call.resolved(call.tensors(), "b200")
    assert set(resolved.copies) == {"scale_a", "scale_b"}
    assert resolved.request.scale_a == Matrix("f32", "m" if recipe == OF_ROWS else "k", 16, (rows_of(recipe), BLOCK))
    assert resolved.request.scale_b == Matrix("f32", "k", 16, (BLOCK, BLOCK))


@pytest.mark.dsl
@pytest.mark.slow
def test_calls_take_kernels_of_these_blocks_from_a_pack(
    kernels: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = build_all(combinations(["sm90_e4m3_block_scaled"], [None], ["sm_90"]), kernels, jobs=1)
    make_pack(tmp_path / "scaled.cutepack", outcomes)
    monkeypatch.setattr("cutegen.build.builder.compile_source", None)  # nothing is compiled
    x, w = torch.randn(8, 256).to(E4M3), torch.randn(8, 256).to(E4M3)
    of_x, of_w = cutegen.quantize(torch.randn(8, 512))[1][:, :2], torch.randn(1, 4)[:, :2]
    with cutegen.load_pack(tmp_path / "scaled.cutepack") as pack, cutegen.matmul_settings(cpu_tensors="executor"):
        found = cutegen.scaled_mm(x, w.T, of_x, OF_ROWS, of_w.T, OF_BLOCKS)
        request = of_request(x, w, scale_a=of_x, scale_b=of_w.T)
        assert pack.answer(request).open is not None
        assert pack.answer(replace(request, scale_a=None, scale_b=None)).open is None
        odd = functional.pad(of_x, (0, 1))[:, :-1]  # rows of three factors: copied, as the kernel reads them
        assert torch.equal(cutegen.scaled_mm(x, w.T, odd, OF_ROWS, of_w.T, OF_BLOCKS), found)
        assert pack.answer(replace(request, scale_b=Matrix("f32", "n", 16, (1, BLOCK)))).open is None
    wide, weights = dequantized(x, of_x), dequantized(w, of_w)
    assert close(found, wide @ weights.T, wide, weights)


def test_lists_of_calls_keep_their_blocks(tmp_path: Path) -> None:
    x, w = torch.empty(64, 512, dtype=E4M3, device="meta"), torch.empty(256, 512, dtype=E4M3, device="meta")
    request = of_request(x, w, scale_a=torch.empty(64, 4, device="meta"), scale_b=torch.empty(2, 4, device="meta").T)
    (tmp_path / "calls.toml").write_text(f"[[kernel]]\nrequest = {toml_value(request.as_json())}\n")
    (wanted,) = read_list(tmp_path / "calls.toml", ())
    assert wanted.spec == spec_of(request)


def test_gradients_reach_a_bias_and_compiled_calls_are_whole_graphs() -> None:
    x, w = torch.randn(M, K).to(E4M3), torch.randn(N, K).to(E4M3)
    of_x, of_w, bias = factors(M, OF_ROWS), factors(N, OF_BLOCKS), torch.randn(N, requires_grad=True)

    def product(bias: Tensor) -> Tensor:
        return cutegen.scaled_mm(x, w.T, of_x, OF_ROWS, of_w.T, OF_BLOCKS, bias=bias, output_dtype=torch.float32)

    found = product(bias)
    found.sum().backward()
    assert torch.equal(bias.grad, torch.full((N,), float(M)))
    compiled = torch.compile(product, backend="eager", fullgraph=True)
    assert torch.equal(compiled(bias.detach()), found.detach())


REFUSED: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "the other order": (
        lambda x, w, a, b: cutegen.matmul(x, w.T, scale_a=a, scale_b=b),
        OperandError,
        r"scale_b: found shape \(3, 4\); expected \(4, 264\) or \(4, 3\): .*; `scale_b.T`",
    ),
    "factors of one operand": (
        lambda x, w, a, b: cutegen.matmul(x, w.T, scale_a=a),
        OperandError,
        r"scale_b: found none; expected \(4, 264\) or \(4, 3\)",
    ),
    "factors of f16": (
        lambda x, w, a, b: cutegen.matmul(x, w.T, scale_a=a.half(), scale_b=b.T),
        OperandError,
        r"scale_a: found dtype f16; expected f32; `scale_a.float\(\)`",
    ),
    "factors of integers": (
        lambda x, w, a, b: cutegen.matmul(x, w.T, scale_a=a.int(), scale_b=b.T),
        OperandError,
        "scale_a: found dtype s32; expected f32$",
    ),
    "powers of two of 8 bits": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, OF_ROWS, b.T.abs().to(torch.float8_e8m0fnu), OF_BLOCKS),
        OperandError,
        r"scale_b: found ue8m0 for blocks of 128 x 128; expected f32: .* of 1 x 32 or 1 x 16; `scale_b.float\(\)`",
    ),
    "factors on another device": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, OF_ROWS, b.T.to("meta"), OF_BLOCKS),
        OperandError,
        r'scale_b: found device meta; expected cpu, the device of a; `scale_b.to\("cpu"\)`',
    ),
    "weights as they are stored": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w, a, OF_ROWS, b.T, OF_BLOCKS),
        OperandError,
        r"mat_b: found shape \(264, 400\), so K = 264; expected K = 400, as in mat_a; `mat_b.mT`, if it is",
    ),
    "a batch": (
        lambda x, w, a, b: cutegen.scaled_mm(x[None], w.T, a[None], OF_ROWS, b.T, OF_BLOCKS),
        OperandError,
        r"mat_a: found shape \(1, 72, 400\); expected a matrix, .*; cutegen.matmul takes batches",
    ),
    "a shard that begins within a block of K": (
        lambda x, w, a, b: cutegen.scaled_mm(x[:, 200:], w[:, 200:].T, a[:, 1:], OF_ROWS, b[:, 1:].T, OF_BLOCKS),
        OperandError,
        r"scale_a: found shape \(72, 3\); expected \(72, 2\) .*; blocks begin at the first K: give a shard of a that",
    ),
    "a shard that begins within a block of columns": (
        lambda x, w, a, b: cutegen.matmul(x, w[120:].T, scale_a=a, scale_b=b.T),
        OperandError,
        r"scale_b: found shape \(4, 3\); expected \(4, 144\) or \(4, 2\): .*; blocks begin at the first of the columns",
    ),
    "operands of 16 bits": (
        lambda x, w, a, b: cutegen.matmul(x.half(), w.half().T, scale_a=a, scale_b=b.T),
        OperandError,
        "scale_a: found factors of blocks of a, of dtype f16; expected an operand of e4m3 or e5m2",
    ),
    "scaled_mm: rows first of 128x128": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, OF_ROWS, b, OF_BLOCKS),
        OperandError,
        r"scale_b: found shape \(3, 4\); expected \(4, 3\) for BlockWise128x128 of mat_b \(400, 264\); `scale_b.T`",
    ),
    "scaled_mm: a recipe of Blackwell": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, "BlockWise1x32", b, OF_BLOCKS),
        RequestError,
        "scale_recipe_b: found BlockWise128x128 with BlockWise1x32; expected BlockWise1x32 for both operands",
    ),
    "scaled_mm: blocks and rows": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, OF_ROWS, b, "RowWise"),
        RequestError,
        "scale_recipe_b: found RowWise with BlockWise1x128; expected blocks for both operands",
    ),
    "scaled_mm: a swizzle": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, OF_ROWS, b.T, OF_BLOCKS, swizzle_a="SWIZZLE_32_4_4"),
        RequestError,
        "swizzle_a: found 'SWIZZLE_32_4_4'; expected none",
    ),
    "scaled_mm: factors of 8 bits for one operand": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, "BlockWise1x32", b.T, None),
        RequestError,
        "scale_recipe_b: found None with BlockWise1x32; expected one for both operands",
    ),
    "scaled_mm: a misspelled recipe": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, "BlockWise1x23", b.T, OF_BLOCKS),
        RequestError,
        "expected one of .* BlockWise1x32, BlockWise1x16; did you mean BlockWise1x",
    ),
    "scaled_mm: no factors": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, OF_ROWS, None, OF_BLOCKS),
        OperandError,
        "scale_b: found a NoneType; expected a torch tensor or a NumPy array",
    ),
    "scaled_mm: numbers for factors": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, [1.0], "TensorWise", 1.0, "TensorWise"),
        OperandError,
        "scale_a: found a float; expected a torch tensor",
    ),
    "scaled_mm: a contraction_dim": (
        lambda x, w, a, b: cutegen.scaled_mm(x, w.T, a, OF_ROWS, b.T, OF_BLOCKS, contraction_dim=(1, 0)),
        RequestError,
        r"contraction_dim: found \(1, 0\); expected \(\)",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_ambiguous_or_unknown_is_refused(what: str) -> None:
    call, error, message = REFUSED[what]
    x, w = torch.ones(M, K).to(E4M3), torch.ones(N, K).to(E4M3)
    with pytest.raises(error, match=message):
        call(x, w, factors(M, OF_ROWS), factors(N, OF_BLOCKS))


@pytest.mark.parametrize(("recipe", "shape_a", "shape_b"), [("TensorWise", (), (1,)), ("RowWise", (M, 1), (1, N))])
def test_factors_of_tensors_and_of_rows_are_those_of_matmul(recipe: str, shape_a: Any, shape_b: Any) -> None:
    x, w = torch.randn(M, K).to(E4M3), torch.randn(N, K).to(E4M3)
    of_a, of_b = torch.rand(shape_a), torch.rand(shape_b)
    found = cutegen.scaled_mm(x, w.T, of_a, recipe, [of_b], [recipe], output_dtype=torch.float32)
    assert_close(found, scaled_product(x.double() * of_a.double(), w.double() * of_b.double().reshape(-1, 1)))
    with pytest.raises(OperandError, match=f"for {recipe}"):
        cutegen.scaled_mm(x, w.T, torch.rand(3, 5), recipe, of_b, recipe)


def test_one_row_and_one_column_have_blocks_too(computed_by: str) -> None:
    for m, n, k in ((1, 1, 300), (1, 200, 128), (130, 1, 129)):
        x, w = torch.randn(m, k).to(E4M3), torch.randn(n, k).to(E4M3)
        of_x, of_w = factors(m, OF_ROWS, k), factors(n, OF_BLOCKS, k)
        found = cutegen.scaled_mm(x, w.T, of_x, OF_ROWS, of_w.T, OF_BLOCKS)
        wide, weights = dequantized(x, of_x), dequantized(w, of_w)
        assert close(found, wide @ weights.T, wide, weights)


@pytest.mark.gpu
@pytest.mark.parametrize(("recipe_a", "recipe_b"), PAIRS)
def test_a_gpu_agrees_with_float64_in_calls_and_in_graphs(recipe_a: str, recipe_b: str) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("only sm_90 has these kernels")
    for m, n, k in ((64, 2112, 7168), (1000, 1000, 1000), (4096, 512, 2048)):
        x, w = torch.randn(m, k).to(E4M3), torch.randn(n, k).to(E4M3)
        of_x, of_w = factors(m, recipe_a, k), factors(n, recipe_b, k)
        scale_a = as_torch_has_them(of_x, recipe_a).cuda()
        scale_b = as_torch_has_them(of_w, recipe_b).cuda()
        a, b = x.cuda(), w.cuda().T
        found = cutegen.scaled_mm(a, b, scale_a, recipe_a, scale_b, recipe_b)
        wide, weights = dequantized(x, of_x), dequantized(w, of_w)
        assert close(found.cpu(), wide @ weights.T, wide, weights)
        graph, out = torch.cuda.CUDAGraph(), torch.empty_like(found)
        with torch.cuda.graph(graph):
            cutegen.scaled_mm(a, b, scale_a, recipe_a, scale_b, recipe_b, out=out)
        graph.replay()
        assert torch.equal(out, found)
