"""`quantize=` of calls of groups: values and factors of each group's rows, and of rows that no group has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import cutegen
from cutegen.build import Cache
from cutegen.errors import OperandError, RequestError

ROOM, N, K, G = 71, 200, 272, 3
ENDS = [4, 4, 60]
SIZES = [0, 71, 30]
OF_ROWS, OF_BLOCKS = "BlockWise1x128", "BlockWise128x128"
CUT = 2**-12 * (9 + 5 * 3)
"""What tensor cores cut off from sums of 9 k-blocks of 32, at most, relative to the size of the sums."""


@pytest.fixture(autouse=True)
def kept(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))


def operands(layout: str, *, n: int = N) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """A and B of a call, and its ends or sizes."""
    random = torch.Generator().manual_seed(61)
    a = torch.randn((ROOM, K) if layout == "packed" else (G, ROOM, K), generator=random)
    given = torch.tensor(ENDS if layout == "packed" else SIZES, dtype=torch.int32)
    return a, torch.randn(G, K, n, generator=random), {"offs" if layout == "packed" else "sizes": given}


def inside(layout: str) -> Tensor:
    """Whether a group has a row."""
    rows = torch.arange(ROOM)
    return rows < ENDS[-1] if layout == "packed" else rows < torch.tensor(SIZES)[:, None]


def of_wide(wide: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """What a result in f32 is quantized to: rows of no group have values and factors of 0."""
    values, factors = cutegen.quantize(wide)
    return values, factors.masked_fill(~inside(layout)[..., None], 0.0)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_result_of_groups_is_quantized_as_that_in_f32(layout: str) -> None:
    a, b, given = operands(layout)
    bias = torch.randn(G, N, generator=torch.Generator().manual_seed(1))
    values, factors = cutegen.grouped_mm(a, b, bias=bias, activation="silu", quantize="e4m3", **given)
    wanted = of_wide(cutegen.grouped_mm(a, b, bias=bias, activation="silu", **given), layout)
    assert (values.dtype, values.shape, factors.shape) == (torch.float8_e4m3fn, (*a.shape[:-1], N), (*a.shape[:-1], 2))
    assert factors.stride() == ((1, 72) if layout == "packed" else (144, 1, 72))
    assert torch.equal(values.float(), wanted[0].float())
    assert torch.equal(factors, wanted[1])


def test_a_layer_of_experts_passes_its_result_to_the_next_without_a_copy() -> None:
    for layout in ("packed", "padded"):
        a, b, given = operands(layout, n=256)
        a8, of_a = cutegen.quantize(a)
        b8, of_b = cutegen.quantize(b.mT, (128, 128))
        down, of_down = cutegen.quantize(b[..., :128, :].contiguous(), (128, 128))  # (G, 128, 256)
        first = (a8, b8.mT, of_a, OF_ROWS, of_b.mT, OF_BLOCKS)
        h8, of_h = cutegen.scaled_grouped_mm(*first, quantize="e4m3", activation="relu", **given)
        y = cutegen.scaled_grouped_mm(h8, down.mT, of_h, OF_ROWS, of_down.mT, OF_BLOCKS, **given)
        assert y.shape == (*a.shape[:-1], 128)
        assert not y[~inside(layout)].any()
        said = cutegen.explain(h8, down.mT, scale_a=of_h, scale_b=of_down.mT, arch="h100", **given)
        assert "copied" not in said


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_out_takes_both_and_keeps_what_no_group_has(layout: str) -> None:
    a, b, given = operands(layout)
    made = cutegen.grouped_mm(a, b, quantize="e4m3", **given)
    out = torch.full(made[0].shape, 3.0).to(torch.float8_e4m3fn), torch.full_like(made[1], 7.0)
    found = cutegen.grouped_mm(a, b, quantize="e4m3", out=out, **given)
    assert (found[0] is out[0], found[1] is out[1]) == (True, True)
    rows = inside(layout)
    assert torch.equal(out[0][rows].float(), made[0][rows].float())
    assert torch.equal(out[1][rows], made[1][rows])
    assert bool((out[0][~rows].float() == 3.0).all())
    assert bool((out[1][~rows] == 7.0).all())


def test_pairs_of_columns_are_joined_before() -> None:
    a, b, given = operands("packed", n=256)
    terms: dict[str, Any] = {"activation": "swiglu", "pairs": "halves", "first": "gate", **given}
    values, factors = cutegen.grouped_mm(a, b, quantize="e4m3_ue8m0", **terms)
    wanted = cutegen.quantize(cutegen.grouped_mm(a, b, **terms), scale="ue8m0")
    assert torch.equal(values.float(), wanted[0].float())
    assert torch.equal(factors[: ENDS[-1]], wanted[1][: ENDS[-1]])


@pytest.mark.slow
def test_compiled_calls_and_prepared_models_have_the_op() -> None:
    a, b, given = operands("padded")

    class Layer(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            found: tuple[Tensor, Tensor] = cutegen.grouped_mm(x, b, quantize="e4m3", **given)
            return found

    wanted = cutegen.grouped_mm(a, b, quantize="e4m3", **given)
    found = torch.compile(Layer(), fullgraph=True, backend="aot_eager")(a)
    assert torch.equal(found[0].float(), wanted[0].float())
    assert (found[1].stride(), torch.equal(found[1], wanted[1])) == (wanted[1].stride(), True)
    from cutegen.torch_ops.model_calls import calls_of

    (resolved,) = calls_of(Layer(), [a.half().float()], {}, arch="h100", backward=False)
    assert resolved.request.groups is not None


@pytest.mark.parametrize(
    ("layout", "terms", "said"),
    [
        ("packed", {"quantize": "e5m2"}, r"grouped_mm: quantize: found \"e5m2\"; expected None or one of e4m3"),
        ("packed", {"out_dtype": torch.bfloat16}, "grouped_mm: out_dtype: found torch.bfloat16 with quantize"),
        ("packed", {"out": torch.empty(2)}, r"grouped_mm: out: found a Tensor; expected \(values, factors\)"),
        (
            "packed",
            {"out": (torch.empty(ROOM, N, dtype=torch.float8_e4m3fn), torch.empty(ROOM, 3))},
            r"scale_c: found f32 of shape \(71, 3\); expected f32 of shape \(71, 2\)",
        ),
        (
            "padded",
            {"out": (torch.empty(G, ROOM, N, dtype=torch.float8_e4m3fn), torch.empty(G, ROOM, 2))},
            r"scale_c: found strides \(142, 2, 1\); expected contiguous rows",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(layout: str, terms: dict[str, Any], said: str) -> None:
    a, b, given = operands(layout)
    with pytest.raises((OperandError, RequestError), match=said):
        cutegen.grouped_mm(a, b, **{"quantize": "e4m3", **given, **terms})


@pytest.mark.parametrize(
    ("shapes", "said"),
    [(((G, 8, 16), (16, 64)), "groups of columns"), (((8, 64), (64, 16)), "parts of K")],
)
def test_only_groups_of_rows_are_quantized(shapes: tuple[tuple[int, ...], tuple[int, ...]], said: str) -> None:
    """A block of 128 columns would be of two groups of columns."""
    offs = torch.tensor([4, 4, 60], dtype=torch.int32)
    with pytest.raises(RequestError, match=rf"grouped_mm: quantize: found {said}.*; expected groups of rows"):
        cutegen.grouped_mm(torch.rand(shapes[0]), torch.rand(shapes[1]), offs=offs, quantize="e4m3")


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_the_executor_agrees_with_torch_and_is_replayed(layout: str) -> None:
    """NaN in rows that no group has reaches nothing, and their values and factors are 0."""
    a, b, given = operands(layout)
    (a8, of_a), (b8, of_b) = cutegen.quantize(a), cutegen.quantize(b.mT, (128, 128))
    rows = inside(layout)
    of_a[~rows] = torch.nan
    call: dict[str, Any] = {"scale_a": of_a, "scale_b": of_b.mT, "quantize": "e4m3", **given}
    by_torch = cutegen.grouped_mm(a8, b8.mT, **call)
    with cutegen.matmul_settings(cpu_tensors="executor"):
        for _ in range(2):
            values, factors = cutegen.grouped_mm(a8, b8.mT, **call)
            torch.testing.assert_close(factors, by_torch[1], rtol=CUT, atol=0.0)
            # A step of e4m3 is an eighth at most, and the largest value of a block is 448.
            close = (values.float() - by_torch[0].float()).abs() <= 0.126 * by_torch[0].float().abs() + 448 * CUT
            assert bool(close.all())
            assert not values[~rows].float().any()
        out = torch.full_like(values.view(torch.uint8), 9).view(values.dtype), torch.full_like(factors, 7.0)
        cutegen.grouped_mm(a8, b8.mT, out=out, **call)
    assert torch.equal(out[0][rows].float(), values[rows].float())
    assert torch.equal(out[1][rows], factors[rows])
    assert bool((out[0].view(torch.uint8)[~rows] == 9).all())
    assert bool((out[1][~rows] == 7.0).all())


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_groups_are_quantized_on_a_gpu_in_one_launch(layout: str) -> None:
    a, b, given = operands(layout)
    (a8, of_a), (b8, of_b) = cutegen.quantize(a), cutegen.quantize(b.mT, (128, 128))
    by_torch = cutegen.grouped_mm(a8, b8.mT, scale_a=of_a, scale_b=of_b.mT, quantize="e4m3", **given)
    there = [x.cuda() for x in (a8, b8, of_a, of_b)]
    ends = {name: x.cuda() for name, x in given.items()}

    def call() -> tuple[Tensor, Tensor]:
        scales = {"scale_a": there[2], "scale_b": there[3].mT}
        found: tuple[Tensor, Tensor] = cutegen.grouped_mm(there[0], there[1].mT, **scales, quantize="e4m3", **ends)
        return found

    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiled:
        values, factors = call()
    # The driver's calls are listed too, and the copy of B's factors, whose rows are not of 16 bytes.
    assert sum(each.count for each in profiled.key_averages() if "grouped" in each.key) == 1
    torch.testing.assert_close(factors.cpu(), by_torch[1], rtol=CUT, atol=0.0)
    close = (values.cpu().float() - by_torch[0].float()).abs() <= 0.126 * by_torch[0].float().abs() + 448 * CUT
    assert bool(close.all())
