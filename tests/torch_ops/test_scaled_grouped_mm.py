"""Groups of 8-bit floats with factors: torch's recipes and orientations, against dequantized operands in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

import cutegen  # noqa: E402
import cutegen.torch_ops.grouped  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.dispatch.request import Request  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from cutegen.grouped_mm import resolved_groups  # noqa: E402

BLOCK, E4M3 = 128, torch.float8_e4m3fn
ROOM, N, K, GIVEN = 71, 136, 272, [4, 4, 60]
G = len(GIVEN)
TENSOR, ROW, OF_ROWS, OF_BLOCKS = "TensorWise", "RowWise", "BlockWise1x128", "BlockWise128x128"
FORMS = {"m": ((ROOM, K), (G, N, K)), "padded": ((G, ROOM, K), (G, N, K)), "k": ((N, ROOM), (40, ROOM))}
CASES = [
    ("m", TENSOR, TENSOR),
    ("m", ROW, ROW),
    ("m", TENSOR, ROW),
    ("m", OF_ROWS, OF_BLOCKS),
    ("m", OF_ROWS, OF_ROWS),
    ("padded", ROW, TENSOR),
    ("padded", OF_ROWS, OF_BLOCKS),
    ("padded", OF_BLOCKS, OF_ROWS),
    ("k", ROW, ROW),
    ("k", TENSOR, ROW),
]
QUICK = ("m", OF_ROWS, OF_BLOCKS)


@pytest.fixture
def kept(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))


@pytest.fixture(params=["torch", pytest.param("executor", marks=[pytest.mark.dsl, pytest.mark.slow])])
def computed_by(request: pytest.FixtureRequest, kept: None) -> Iterator[str]:
    with cutegen.matmul_settings(cpu_tensors=request.param):
        yield request.param


class Operand(NamedTuple):
    """Values (..., rows, K), their factors as torch has them, and what both mean in float64."""

    values: Tensor
    scale: Tensor
    wide: Tensor


def blocks(extent: int) -> int:
    return -(-extent // BLOCK)


def operand(shape: tuple[int, ...], recipe: str, form: str, *, device: str = "cpu") -> Operand:
    """Parts of K have factors for each group, which `wide` has along a first dimension."""
    values = torch.randn(shape).to(E4M3)
    *batch, rows, k = shape
    groups = [G] if form == "k" else batch
    if recipe == TENSOR:
        scale = torch.randn(groups or [1])
        wide = values.double() * scale.double().view(*groups, 1, 1)
    elif recipe == ROW:
        each = torch.randn(*groups, rows)
        wide = values.double() * each.double()[..., None]
        scale = each.flatten() if form == "k" else each
    else:
        of = 1 if recipe == OF_ROWS else BLOCK
        each = torch.randn(*batch, -(-rows // of), blocks(k))
        spread = each.double().repeat_interleave(of, -2).repeat_interleave(BLOCK, -1)
        wide = values.double() * spread[..., :rows, :k]
        scale = each
        if recipe == OF_BLOCKS:  # K first, padded with NaN to a multiple of 4
            padding = -each.shape[-1] % 4
            scale = functional.pad(each, (0, padding), value=torch.nan).mT
    return Operand(values.to(device), scale.to(device), wide)


def named(form: str, given: list[int], device: str = "cpu") -> dict[str, Tensor]:
    return {"sizes" if form == "padded" else "offs": torch.tensor(given, dtype=torch.int32, device=device)}


def parts(form: str, x: Operand, w: Operand, given: list[int]) -> list[tuple[Any, Tensor, Tensor]]:
    """Each group's place in the result, and its operands (rows, K) and (columns, K)."""
    found: list[tuple[Any, Tensor, Tensor]] = []
    begin = 0
    for group, end in enumerate(given):
        part = slice(begin, end)
        if form == "k":
            found.append((group, x.wide[group, :, part], w.wide[group, :, part]))
        elif form == "m":
            found.append((part, x.wide[part], w.wide[group]))
        else:
            found.append(((group, part), x.wide[group, part], w.wide[group]))
        begin = 0 if form == "padded" else end
    return found


def check(
    form: str, x: Operand, w: Operand, found: Tensor, bias: Tensor | None = None, given: list[int] | None = None
) -> None:
    """Rounding of the result, and what tensor cores cut of sums: 13 bits of each instruction's of 32 products."""
    inside = torch.zeros(found.shape, dtype=torch.bool)
    for group, (at, a, b) in enumerate(parts(form, x, w, GIVEN if given is None else given)):
        exact = a @ b.T + (0 if bias is None else bias[group].double())
        cut = 2.0**-11 * a.norm(dim=1)[:, None] * b.norm(dim=1)
        error = (found[at].double() - exact).abs()
        assert (error <= torch.finfo(found.dtype).eps / 2 * exact.abs() + cut).all()
        inside[at] = True
    assert not found[~inside].any()


def call(form: str, recipes: tuple[str, str], x: Operand, w: Operand, **terms: Any) -> Tensor:
    device = str(x.values.device)
    given = {} if {"offs", "sizes"} & terms.keys() else named(form, GIVEN, device)
    found: Tensor = cutegen.scaled_grouped_mm(
        x.values, w.values.mT, x.scale, recipes[0], w.scale, recipes[1], **{**given, **terms}
    )
    return found


@pytest.mark.parametrize(("form", "recipe_a", "recipe_b"), CASES)
def test_every_recipe_takes_factors_as_torch_has_them(
    form: str, recipe_a: str, recipe_b: str, computed_by: str
) -> None:
    """NaN in rows that no group has, and in their factors, reaches nothing."""
    x, w = (operand(shape, each, form) for shape, each in zip(FORMS[form], (recipe_a, recipe_b), strict=True))
    if form == "m":
        x.values[GIVEN[-1] :] = torch.nan
        if recipe_a != TENSOR:
            x.scale[GIVEN[-1] :] = torch.nan
    bias = torch.randn(G, w.values.shape[-2])
    found = call(form, (recipe_a, recipe_b), x, w, bias=bias)
    assert found.dtype is torch.bfloat16
    check(form, x, w, found, bias)
    check(form, x, w, call(form, (recipe_a, recipe_b), x, w, output_dtype=torch.float32))


def test_enums_and_lists_of_one_are_names(kept: None) -> None:
    kinds = getattr(functional, "ScalingType", None)
    if kinds is None:
        pytest.skip("this torch has no ScalingType")
    x, w = operand(FORMS["m"][0], ROW, "m"), operand(FORMS["m"][1], ROW, "m")
    offs = named("m", GIVEN)["offs"]
    by_torch = (x.values, w.values.mT, [x.scale], [kinds.RowWise], [w.scale], [kinds.RowWise], None, None, None, offs)
    assert torch.equal(cutegen.scaled_grouped_mm(*by_torch), call("m", (ROW, ROW), x, w))


@pytest.mark.dsl
@pytest.mark.usefixtures("kept")
def test_the_executor_scales_blocks_of_groups_for_any_ends() -> None:
    """With factors that are powers of two, all different, the result is exact: of small integers."""
    x, w = torch.randint(-4, 5, (ROOM, K)), torch.randint(-4, 5, (G, N, K))
    of_x = 2.0 ** (torch.arange(ROOM)[:, None] % 5 + torch.arange(blocks(K)) % 3 - 3)
    of_w = 2.0 ** (torch.arange(G * blocks(N) * blocks(K)).reshape(G, blocks(N), blocks(K)) % 7 - 3)
    wide_x = x.double() * of_x.double().repeat_interleave(BLOCK, 1)[:, :K]
    wide_w = w.double() * of_w.double().repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)[:, :N, :K]
    operands = Operand(x.float().to(E4M3), of_x, wide_x), Operand(w.float().to(E4M3), of_w.mT, wide_w)
    with cutegen.matmul_settings(cpu_tensors="executor"):
        for given in (GIVEN, [-3, 70, 12], [2**31 - 1, 0, -(2**31)]):
            found = call("m", QUICK[1:], *operands, output_dtype=torch.float32, **named("m", given))
            begin = 0
            for group, end in enumerate(min(max(each, 0), ROOM) for each in given):
                end = max(end, begin)
                assert torch.equal(found[begin:end].double(), wide_x[begin:end] @ wide_w[group].T)
                begin = end
            assert not found[begin:].any()


@pytest.mark.parametrize("recipes", [(ROW, ROW), (OF_ROWS, OF_BLOCKS)])
def test_pairs_activations_and_out(recipes: tuple[str, str], computed_by: str) -> None:
    """Factors are in the order of the weight; with blocks that have columns of both members torch joins pairs."""
    x, w = operand(FORMS["m"][0], recipes[0], "m"), operand(FORMS["m"][1], recipes[1], "m")
    out = torch.full((ROOM, N // 2), 7.0, dtype=torch.bfloat16)
    found = call("m", recipes, x, w, activation="swiglu", pairs="halves", first="up", out=out)
    assert found is out
    for at, a, b in parts("m", x, w, GIVEN):
        up, gate = (a @ b.T).chunk(2, -1)
        cut_up, cut_gate = (2.0**-11 * a.norm(dim=1)[:, None] * b.norm(dim=1)).chunk(2, -1)
        exact = functional.silu(gate) * up
        error = 1.1 * cut_gate * (up.abs() + cut_up) + cut_up * gate.abs() + 2.0**-8 * exact.abs()
        assert ((found[at].double() - exact).abs() <= error).all()
    assert (out[GIVEN[-1] :] == 7.0).all()
    act = call("m", recipes, x, w, activation=torch.nn.SiLU())
    plain = call("m", recipes, x, w, output_dtype=torch.float32)
    torch.testing.assert_close(act.float(), functional.silu(plain), rtol=2.0**-7, atol=2.0**-7)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.usefixtures("kept")
def test_one_kernel_scales_blocks_and_joins_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """If each member has blocks of its own, with factors along K."""
    x, w = operand((ROOM, 400), OF_ROWS, "m"), operand((G, 256, 400), OF_BLOCKS, "m")
    monkeypatch.setattr("cutegen.torch_ops.grouped.activated", None)  # torch joins nothing
    with cutegen.matmul_settings(cpu_tensors="executor"):
        found = call("m", QUICK[1:], x, w, activation="swiglu", pairs="halves", first="gate")
        for other in ({"pairs": "interleaved"}, {"pairs": 8}):
            with pytest.raises(TypeError, match="not callable"):
                call("m", QUICK[1:], x, w, **{"activation": "swiglu", "first": "gate", **other})
    for at, a, b in parts("m", x, w, GIVEN):
        gate, up = (a @ b.T).chunk(2, -1)
        cut_gate, cut_up = (2.0**-11 * a.norm(dim=1)[:, None] * b.norm(dim=1)).chunk(2, -1)
        exact = functional.silu(gate) * up
        error = 1.1 * cut_gate * (up.abs() + cut_up) + cut_up * gate.abs() + 2.0**-8 * exact.abs()
        assert ((found[at].double() - exact).abs() <= error).all()
    assert not found[GIVEN[-1] :].any()


@pytest.mark.parametrize("form", ["m", "padded"])
def test_compiled_calls_are_whole_graphs(form: str) -> None:
    x, w = operand(FORMS[form][0], OF_ROWS, form), operand(FORMS[form][1], OF_BLOCKS, form)
    run = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(run(form, QUICK[1:], x, w), call(form, QUICK[1:], x, w))


@pytest.mark.slow
def test_the_op_keeps_its_promises() -> None:
    x, w = operand(FORMS["m"][0], ROW, "m"), operand(FORMS["m"][1], ROW, "m")
    offs = named("m", GIVEN)["offs"]
    values = x.values.float(), w.values.float().mT  # schema checks compute with no 8-bit floats
    arguments = (*values, offs, None, None, None, False, None, None, x.scale, w.scale)
    torch.library.opcheck(torch.ops.cutegen.grouped_mm, arguments)


def test_a_request_has_the_factors_and_is_explained() -> None:
    x, w = operand(FORMS["m"][0], OF_ROWS, "m"), operand(FORMS["m"][1], OF_BLOCKS, "m")
    in_order = {"scale_a": x.scale, "scale_b": w.scale[:, : blocks(K)], **named("m", GIVEN)}
    request = resolved_groups(x.values, w.values.mT, arch="h100", **in_order).request
    assert request.scale_a is not None
    assert request.scale_b is not None
    assert (request.scale_a.block, request.scale_b.block) == ((1, 128), (128, 128))
    assert Request.from_json(request.as_json(), "list") == request
    said = cutegen.explain(x.values, w.values.mT, arch="h100", **in_order)
    assert "family sm90" in said
    # Rows of 3 factors have no stride of 16 bytes.
    assert "f32 for blocks of 1 x 128 k-major, 4-byte aligned: by lanes of a warp" in " ".join(said.split())
    assert "f32 for blocks of 128 x 128 k-major, 16-byte aligned: by tensor map" in " ".join(said.split())
    assert "copied" not in said


def test_a_blackwell_has_kernels_for_groups_with_factors() -> None:
    """By family sm100, of which no kernel has run on hardware."""
    x, w = torch.empty(64, 512, dtype=E4M3, device="meta"), torch.empty(3, 256, 512, dtype=E4M3, device="meta")
    scales = {
        "scale_a": torch.empty(4, 64, device="meta").T,
        "scale_b": torch.empty(3, 2, 4, device="meta").mT,
        "offs": torch.empty(3, dtype=torch.int32, device="meta"),
    }
    said = cutegen.explain(x, w.mT, arch="b200", **scales)
    assert "family sm100, CTA tile 128x" in said


def test_what_does_not_fit_is_told() -> None:
    x, w = operand(FORMS["m"][0], OF_ROWS, "m"), operand(FORMS["m"][1], OF_BLOCKS, "m")
    rows, columns = torch.rand(ROOM), torch.rand(G, N)
    wrong: list[tuple[str, tuple[Any, ...]]] = [
        (r"scale_recipe_b: found RowWise with BlockWise1x128", (x.scale, OF_ROWS, columns, ROW)),
        (r"scale_a: found shape \(71, 1\); expected \(71,\) for RowWise", (rows[:, None], ROW, columns, ROW)),
        (r"scale_b: found shape \(3, 136, 1\); expected \(3, 136\)", (rows, ROW, columns[..., None], ROW)),
        (r"scale_b: found shape \(3, 2, 4\); .* `scale_b.mT`", (x.scale, OF_ROWS, w.scale.mT, OF_BLOCKS)),
        (
            r"scale_a: found factors of blocks of 128 rows, and packed groups; .* sizes=",
            (torch.rand(blocks(K), blocks(ROOM)), OF_BLOCKS, w.scale, OF_BLOCKS),
        ),
        (r"scale_b: found shape \(2,\); expected one element, or \(G,\)", (rows, ROW, torch.rand(2), TENSOR)),
        (r"scale_b: found dtype .*64; expected f32", (rows, ROW, columns.double(), ROW)),
    ]
    for told, (of_x, kind_x, of_w, kind_w) in wrong:
        with pytest.raises((OperandError, RequestError), match=told):
            cutegen.scaled_grouped_mm(x.values, w.values.mT, of_x, kind_x, of_w, kind_w, **named("m", GIVEN))
    with pytest.raises(OperandError, match=r"mat_b: found shape .*, so K = 136; expected K = 272, .*`mat_b.mT`"):
        cutegen.scaled_grouped_mm(x.values, w.values, x.scale, OF_ROWS, w.scale, OF_BLOCKS, **named("m", GIVEN))
    for given, name in (((None, w.values.mT, x.scale), "mat_a"), ((x.values, w.values.mT, None), "scale_a")):
        with pytest.raises(OperandError, match=f"operand {name}: found a NoneType; expected a torch tensor"):
            cutegen.scaled_grouped_mm(*given, OF_ROWS, w.scale, OF_BLOCKS, **named("m", GIVEN))
    a, b = operand(FORMS["k"][0], ROW, "k"), operand(FORMS["k"][1], ROW, "k")
    with pytest.raises(OperandError, match=r"scale_a: found BlockWise1x128; expected .* with parts of K"):
        call("k", (OF_ROWS, OF_ROWS), a, b)
    with pytest.raises(RequestError, match=r"found factors and a tensor that requires grad"):
        cutegen.grouped_mm(
            torch.rand(ROOM, K, requires_grad=True), w.values.float().mT, scale_a=rows, **named("m", GIVEN)
        )


@pytest.mark.gpu
@pytest.mark.parametrize(("form", "recipe_a", "recipe_b"), CASES)
def test_calls_on_a_gpu_are_those_of_dequantized_operands(form: str, recipe_a: str, recipe_b: str) -> None:
    """Repeated, and replayed in a graph with other ends."""
    given = zip(FORMS[form], (recipe_a, recipe_b), strict=True)
    x, w = (operand(shape, each, form, device="cuda") for shape, each in given)
    ends = named(form, [0] * G, "cuda")
    call(form, (recipe_a, recipe_b), x, w, **ends)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = call(form, (recipe_a, recipe_b), x, w, **ends)
    for sizes in (GIVEN, [60, 60, 71]):
        next(iter(ends.values())).copy_(torch.tensor(sizes))
        graph.replay()
        check(form, x, w, replayed.cpu(), given=sizes)
        check(form, x, w, call(form, (recipe_a, recipe_b), x, w, **ends).cpu(), given=sizes)


@pytest.mark.gpu
def test_rows_are_those_of_torch_on_a_gpu() -> None:
    """Of factors, torch has those of rows only, and of multiples of 16."""
    x, w = operand((64, K), ROW, "m", device="cuda"), operand((G, N - 8, K), ROW, "m", device="cuda")
    offs = named("m", [16, 16, 64], "cuda")["offs"]
    kind = functional.ScalingType.RowWise
    arguments = (x.values, w.values.mT, x.scale.abs(), kind, w.scale.abs(), kind)
    mine, theirs = (
        function(*arguments, offs=offs, output_dtype=torch.bfloat16)
        for function in (cutegen.scaled_grouped_mm, functional.scaled_grouped_mm)
    )
    torch.testing.assert_close(mine, theirs, rtol=2.0**-6, atol=2.0**-4)
