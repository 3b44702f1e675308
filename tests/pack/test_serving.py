"""Which calls a pack's kernels serve: each that it was packed for, and no call of another formula or other types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.build.pack_file import PackEntry  # noqa: E402
from cutegen.contract.launch import GEMM  # noqa: E402
from cutegen.dispatch.formula import Formula  # noqa: E402
from cutegen.dispatch.model import planned, spec_of  # noqa: E402
from cutegen.dispatch.pack import Pack  # noqa: E402
from cutegen.dispatch.request import Request  # noqa: E402
from cutegen.grouped_mm import resolved_groups  # noqa: E402
from cutegen.matmul import _arguments  # noqa: E402
from cutegen.pack.building import build_all, make_pack  # noqa: E402
from cutegen.pack.kernel_list import read_list  # noqa: E402
from cutegen.torch_ops.eager import resolved_tensors  # noqa: E402

F8, F4, F32 = torch.float8_e4m3fn, torch.float4_e2m1fn_x2, torch.float32
GATED: dict[str, Any] = {"activation": "swiglu", "pairs": "halves", "first": "gate"}
ROWS, BLOCKS = "BlockWise1x128", "BlockWise128x128"


def new(*shape: int, dtype: Any = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def product(dtype: Any = torch.bfloat16, arch: str = "h100", **terms: Any) -> Request:
    """The request of a call, of 512 x 512 operands with K in 512 elements of memory."""
    call = _arguments("explain", new(512, 512, dtype=dtype), new(512, 512, dtype=dtype).T, **terms)
    return call.resolved(call.tensors(), arch).request


def of_formula(formula: Formula, **beside: Tensor) -> Request:
    """The request of a call that a caller does not make itself: with what gradients need."""
    return resolved_tensors({"a": new(512, 512), "b": new(512, 512).T, **beside}, formula, None, "h100").request


def groups(dtype: Any = torch.bfloat16, *, padded: bool = False, **terms: Any) -> Request:
    a = new(4, 512, 512, dtype=dtype) if padded else new(512, 512, dtype=dtype)
    ends = {"sizes" if padded else "offs": new(4, dtype=torch.int32)}
    found: Request = resolved_groups(a, new(4, 512, 512, dtype=dtype).mT, arch="h100", **ends, **terms).request
    return found


def scales(groups: int | None = None, *, room: int = 512, rows_of_b: bool = False) -> dict[str, Tensor]:
    """Factors of 1 x 128 with rows contiguous, and of 128 x 128, or 1 x 128, with K contiguous."""
    of_b = (4, 512) if rows_of_b else (4, 4)
    scale_b = new(*of_b, dtype=F32) if groups is None else new(groups, *of_b[::-1], dtype=F32).mT
    return {"scale_a": new(4, room, dtype=F32).T, "scale_b": scale_b if rows_of_b or groups else scale_b.T}


def atoms(values: int, dtype: Any, *seconds: Tensor) -> dict[str, Any]:
    factors = new(512 * 512 // values, dtype=dtype)
    return dict.fromkeys(("scale_a", "scale_b"), (factors, *seconds))


def nvf4(*seconds: Tensor) -> Request:
    return product(F4, "b200", **atoms(8, F8, *seconds))  # a byte has two values


QUANTIZED: dict[str, Callable[[], Request]] = {
    "8 bits": lambda: product(F8, quantize="e4m3"),
    "powers of two": lambda: product(F8, quantize="e4m3_ue8m0"),
    "8 bits, cast": lambda: product(F8, out_dtype=F8),
}
CALLS: dict[str, Callable[[], Request]] = {
    **QUANTIZED,
    "alone": product,
    "16 bits, quantized": lambda: product(quantize="e4m3"),
    "bias": lambda: product(bias=new(512)),
    "bias in f32": lambda: product(bias=new(512, dtype=F32)),
    "residual": lambda: product(residual=new(512, 512)),
    "c": lambda: product(c=new(512, 512), beta=1.0),
    "c, quantized": lambda: product(F8, c=new(512, 512, dtype=F8), beta=1.0, quantize="e4m3"),
    "aux": lambda: of_formula(Formula("gelu", aux=True)),
    "aux, bias": lambda: of_formula(Formula("gelu", aux=True, bias=True), bias=new(512)),
    "pairs": lambda: product(**GATED),
    "rows": lambda: product(F8, scale_a=new(512, 1, dtype=F32), scale_b=new(1, 512, dtype=F32)),
    "rows of a": lambda: product(F8, scale_a=new(512, 1, dtype=F32)),
    "blocks in bf16": lambda: product(F8, **scales()),
    "blocks, quantized": lambda: product(F8, **scales(), quantize="e4m3"),
    "1 x 128 twice": lambda: product(F8, **scales(rows_of_b=True)),
    "blocks along k": lambda: product(F8, scale_a=new(512, 4, dtype=F32), scale_b=scales()["scale_b"]),
    "blocks, pairs": lambda: product(F8, **scales(), **GATED, quantize="e4m3"),
    "groups": groups,
    "columns": lambda: (
        resolved_groups(new(4, 512, 512), new(512, 512).T, arch="h100", offs=new(4, dtype=torch.int32)).request
    ),
    "parts of k": lambda: (
        resolved_groups(new(512, 512), new(512, 512).T, arch="h100", offs=new(4, dtype=torch.int32)).request
    ),
    "groups, bias": lambda: groups(bias=new(4, 512)),
    "groups, quantized": lambda: groups(quantize="e4m3"),
    "groups, rows": lambda: groups(F8, scale_a=new(512, dtype=F32), scale_b=new(4, 512, dtype=F32)),
    "groups, blocks": lambda: groups(F8, **scales(4)),
    "groups, blocks, quantized": lambda: groups(F8, **scales(4), quantize="e4m3"),
    "groups, blocks, pairs": lambda: groups(F8, **scales(4), **GATED, quantize="e4m3"),
    "padded, quantized": lambda: groups(F8, padded=True, **padded_scales(), quantize="e4m3"),
    "mxf8": lambda: product(F8, "b200", **atoms(32, torch.float8_e8m0fnu)),
    "mxf8, quantized": lambda: product(F8, "b200", **atoms(32, torch.float8_e8m0fnu), quantize="e4m3"),
    "nvf4": lambda: nvf4(new(1, dtype=F32)),
    "nvf4 alone": nvf4,
    "blocks on a Blackwell": lambda: product(F8, "b200", **scales(), quantize="e4m3"),
}


def padded_scales() -> dict[str, Tensor]:
    return {"scale_a": new(4, 4, 512, dtype=F32).mT, "scale_b": new(4, 4, 4, dtype=F32).mT}


class Planned(Pack):
    """A pack of the kernels that the model plans for calls, none of which is compiled."""

    def __init__(self, calls: dict[str, Request]) -> None:
        self._planned = tuple(map(_entry, calls, calls.values()))

    @property
    def entries(self) -> tuple[PackEntry, ...]:
        return self._planned


def _entry(name: str, request: Request) -> PackEntry:
    epilogue = spec_of(request).epilogue
    return PackEntry(
        name=name,
        problem=request.problem,
        target=request.target,
        gpu_arch=request.target,
        kind=GEMM,
        ops=epilogue.ops or (),
        expression=epilogue.expression,
        key=name,
        files={},
        launch=planned(request).launch,
    )


@pytest.mark.parametrize("calls", [QUANTIZED, pytest.param(CALLS, marks=pytest.mark.slow)], ids=["quantized", "all"])
def test_each_kernel_serves_the_call_that_it_was_planned_for_and_no_other(
    calls: dict[str, Callable[[], Request]],
) -> None:
    requests = {name: asked() for name, asked in calls.items()}
    pack = Planned(requests)
    found = {name: pack.answer(request).why for name, request in requests.items()}
    assert found == {name: f"{name}, made for {request.problem}" for name, request in requests.items()}


def test_of_kernels_that_quantize_the_one_with_tensor_maps_is_taken() -> None:
    """Lanes copy factors of any strides, also of such that a tensor map has. C's factors are stored one at a time."""
    apart = {**scales(), "scale_a": new(4, 513, dtype=F32)[:, :512].T}
    requests = {"lanes": product(F8, **apart, quantize="e4m3"), "maps": CALLS["blocks, quantized"]()}
    pack = Planned(requests)
    assert {name: pack.answer(request).why.partition(",")[0] for name, request in requests.items()} == {
        "lanes": "lanes",
        "maps": "maps",
    }


def real(function: str, gated: bool) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A function with its arguments, for a quantized result."""
    random = torch.Generator().manual_seed(61)
    grouped = "grouped" in function
    x = torch.randn(40, 256, generator=random)
    w = torch.randn(*((3,) if grouped else ()), 512 if gated else 256, 256, generator=random)
    terms: dict[str, Any] = {"quantize": "e4m3", **(GATED if gated else {})}
    if grouped:
        terms["offs"] = torch.tensor([4, 4, 33], dtype=torch.int32)
    if not function.startswith("scaled"):
        return getattr(cutegen, function), (x.bfloat16(), w.bfloat16().mT), terms
    (x8, of_x), (w8, of_w) = cutegen.quantize(x), cutegen.quantize(w, (128, 128))
    return getattr(cutegen, function), (x8, w8.mT, of_x, ROWS, of_w.mT, BLOCKS), terms


def scales_of(arguments: tuple[Any, ...]) -> dict[str, Tensor]:
    """The factors, as `explain` takes them."""
    return {"scale_a": arguments[2], "scale_b": arguments[4]} if len(arguments) > 2 else {}


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("gated", [False, True], ids=["alone", "pairs"])
@pytest.mark.parametrize("function", ["matmul", "scaled_mm", "grouped_mm", "scaled_grouped_mm"])
def test_a_pack_of_recorded_calls_serves_quantized_results(
    function: str, gated: bool, tmp_path: Path, kernels: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, arguments, terms = real(function, gated)
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    monkeypatch.setenv("CUTEGEN_RECORD", str(tmp_path / "calls.toml"))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        first = call(*arguments, **terms)
        monkeypatch.delenv("CUTEGEN_RECORD")
        make_pack(tmp_path / "layer.cutepack", build_all(read_list(tmp_path / "calls.toml"), kernels, jobs=1))
        monkeypatch.setattr("cutegen.build.builder.compile_source", None)  # nothing is compiled
        opened: list[str] = []
        opens = Pack.open
        monkeypatch.setattr(Pack, "open", lambda self, entry: (opened.append(entry.name), opens(self, entry))[1])
        with cutegen.load_pack(tmp_path / "layer.cutepack") as pack:
            again = call(*arguments, **terms)
            said = cutegen.explain(arguments[0], arguments[1], **scales_of(arguments), **terms, arch="h100")
    assert f"the pack {pack.path}: {pack.entries[0].name}, made for {pack.entries[0].problem}" in " ".join(said.split())
    assert opened == [pack.entries[0].name]
    assert torch.equal(again[0].float(), first[0].float())
    assert torch.equal(again[1], first[1])
