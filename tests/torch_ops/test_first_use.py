"""The first use of a kernel that no hardware has run: compared with float64 on the call's operands, replaced if wrong.

There is no such GPU here: tensors in host memory are said to be on one, and the executor runs what it would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.contract.problem import Pairs  # noqa: E402
from cutegen.dispatch.model import model  # noqa: E402
from cutegen.dispatch.provider import PACK, Answer  # noqa: E402
from cutegen.dispatch.providers import providers  # noqa: E402
from cutegen.dispatch.request import TRIED, Request  # noqa: E402
from cutegen.dispatch.resolve import CallTarget  # noqa: E402
from cutegen.dispatch.settings import settings  # noqa: E402
from cutegen.errors import RequestError  # noqa: E402
from cutegen.spec.steps import steps  # noqa: E402
from cutegen.torch_ops import call_cache, eager, first_use, grouped  # noqa: E402
from cutegen.verify.error_bounds import Bounded, run_chain  # noqa: E402
from tests.run.ptx_mutants import with_ptx  # noqa: E402
from tests.torch_ops import test_grouped_micro_scales as of_groups  # noqa: E402
from tests.torch_ops.cases import half  # noqa: E402
from tests.torch_ops.exact import Exact, close, close_quantized, scaled_product  # noqa: E402
from tests.torch_ops.test_micro_scales import matrix, product  # noqa: E402

WRONG: dict[str, Callable[[str], str]] = {
    "right": lambda text: text,
    "two columns exchanged": lambda text: re.sub(
        r"(cvt\.rn\.f16x2\.f32\s+%r\d+), (%r\d+), (%r\d+);", r"\1, \3, \2;", text
    ),
    "a descriptor with another stride": lambda text: text.replace(str(0x4000404000010000), str(0x4000402000010000)),
}
"""What stands in the place of the text of a kernel of family sm100."""


class Planted:
    """A provider that stands before the model: it has the model's kernel of family sm100, with another text."""

    name = "planted"

    def __init__(self, change: Callable[[str], str]) -> None:
        self.change, self.served = change, 0

    def answer(self, request: Request) -> Answer:
        """The model's kernel with another text, unless only tried families may serve."""
        found = model.answer(request)
        return (
            Answer("tried ones are not planted") if request.family == TRIED else replace(found, open=self.kernel(found))
        )

    def kernel(self, found: Answer) -> Callable[[], Any]:
        def open_() -> Any:
            self.served += 1
            right = found.open()  # type: ignore[misc]
            changed = self.change(right.artifact.ptx)
            assert changed != right.artifact.ptx or self.change is WRONG["right"]
            made = with_ptx(right, changed)
            made.artifact.key, made.artifact.hit = right.artifact.key, True  # type: ignore[misc]
            return made

        return open_


@pytest.fixture(autouse=True)
def _on_a_blackwell(kernels: Cache, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Calls with tensors in host memory are those of a GPU that no other test has."""
    device = f"B200 of {request.node.name}"
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    for module in (eager, grouped):
        target = lambda *_, **__: CallTarget("sm_100", device, family=settings.asked_family)  # noqa: E731
        monkeypatch.setattr(module, "call_target", target)
    monkeypatch.setattr(first_use, "_right", {})
    with cutegen.matmul_settings(cpu_tensors="executor", family="sm100"):  # at these sizes "any" is another
        yield


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[Planted]:
    one = Planted(WRONG[request.param])
    providers.register(PACK, one)
    yield one
    providers.withdraw(one)


@pytest.mark.slow
@pytest.mark.dsl
@pytest.mark.parametrize("planted", WRONG, indirect=True)
def test_a_first_result_that_is_wrong_is_not_returned(planted: Planted, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is planted, every result is right; a wrong kernel is replaced for its request, which is said once."""
    right = planted.change is WRONG["right"]
    a, w, before = half(64, 64), half(64, 64).T, half(64, 64)
    for _ in range(2):
        out = before.clone()  # a wrong kernel has overwritten what the next one reads
        close(cutegen.matmul(a, w, residual=out, out=out), Exact(a, w, residual=before))
    said = [each.getMessage() for each in caplog.records if "family that has run on hardware" in each.getMessage()]
    assert len(said) == (not right)
    assert right or re.search(
        r"matmul_f16_tn_residual: found out \S+ at \[\d+, \d+\] where \S+ is expected, within", said[0]
    )
    assert list(first_use._right.values()) == [right]


@pytest.mark.slow
@pytest.mark.dsl
def test_a_right_kernel_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    real = first_use._difference
    monkeypatch.setattr(first_use, "_difference", lambda *given: compared.append(given) or real(*given))
    a, w = half(64, 64), half(64, 64).T
    for _ in range(3):
        close(cutegen.matmul(a, w), Exact(a, w))
    a[0, 0] = torch.nan  # elements of this row may be anything, as they are
    assert cutegen.matmul(a, w)[1:].isfinite().all()
    assert len(compared) == 1


@pytest.mark.slow
@pytest.mark.dsl
def test_operands_with_nan_are_no_difference(caplog: pytest.LogCaptureFixture) -> None:
    a, w = half(64, 64), half(64, 64).T
    a[3, 5], w[2, 7] = torch.nan, torch.inf
    cutegen.matmul(a, w)
    assert list(first_use._right.values()) == [True], caplog.text


@pytest.mark.slow
@pytest.mark.dsl
def test_without_memory_to_compare_a_tried_kernel_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(first_use, "_expected", none_left)
    a, w = half(64, 64), half(64, 64).T
    close(cutegen.matmul(a, w), Exact(a, w))
    assert "too little memory to compare" in caplog.text


@pytest.mark.slow
@pytest.mark.dsl
def test_a_capture_cannot_be_the_first_use() -> None:
    a, w = half(64, 64), half(64, 64).T
    resolved = eager.resolved_call(eager.Call(a, w))
    ready = eager.prepare_call(resolved)
    assert first_use.is_due(resolved, ready)
    launch = first_use.Launch({}, {}, 0)
    with pytest.raises(RequestError, match=r"capture at the first use of matmul_f16_tn.*family=\"tried\""):
        first_use.launched(launch, resolved, ready, capturing=True)


@pytest.mark.slow
@pytest.mark.dsl
def test_factors_of_blocks_are_compared_too() -> None:
    """A call of `scaled_mm` on a Blackwell: f32 factors of 1 x 128 and 128 x 128, as DeepSeek-V3 has them."""
    x, of_x = cutegen.quantize(half(72, 272).float(), (1, 128))
    w, of_w = cutegen.quantize(half(136, 272).float(), (128, 128))
    found = cutegen.scaled_mm(x, w.T, of_x, "BlockWise1x128", of_w.T, "BlockWise128x128")
    assert list(first_use._right.values()) == [True]
    wide = x.double() * of_x.double().repeat_interleave(128, 1)[:, :272]
    weights = w.double() * of_w.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:136, :272]
    close(found, scaled_product(wide, weights, cut=True))


SWIZZLED: Any = {"swizzle_a": "SWIZZLE_32_4_4", "swizzle_b": "SWIZZLE_32_4_4"}
RECIPES: dict[str, tuple[Any, Any]] = {
    "mxf8": ({"block": (1, 32), "scale": "ue8m0"}, "BlockWise1x32"),
    "mxf4": ({"block": (1, 32), "scale": "ue8m0", "dtype": "e2m1"}, "BlockWise1x32"),
    "nvf4": ({"block": (1, 16), "scale": "ue4m3", "dtype": "e2m1"}, ["BlockWise1x16", "TensorWise"]),
}


def of_8_bits(recipe: str, k: int = 256) -> tuple[Any, Any]:
    """The arguments of a call of `scaled_mm` of 72 x 72, and its result, from the bytes; f16 has it."""
    given, name = RECIPES[recipe]
    (a, of_a), (b, of_b) = (cutegen.quantize(matrix(72, k) / 256, **given) for _ in "ab")
    block = given["block"][1]
    return (a, b.T, of_a, name, of_b, name), product(a, of_a, b, of_b, block)


@pytest.mark.slow
@pytest.mark.dsl
@pytest.mark.parametrize("recipe", RECIPES)
def test_factors_of_8_bits_are_compared_too(recipe: str) -> None:
    """Calls choose kernels of family sm100, with the bytes that `quantize` makes, in place."""
    arguments, wanted = of_8_bits(recipe)
    for _ in range(2):
        found = cutegen.scaled_mm(*arguments, **SWIZZLED, output_dtype=torch.float32)
        close(found, wanted)
    assert list(first_use._right.values()) == [True]


@pytest.mark.slow
@pytest.mark.dsl
@pytest.mark.parametrize("planted", ["two columns exchanged"], indirect=True)
def test_torch_computes_what_no_other_family_can(planted: Planted, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong kernel with factors of 8 bits has none of `mma.sync` to take its place."""
    arguments, wanted = of_8_bits("mxf8")
    for _ in range(2):
        out = torch.full((72, 72), torch.nan, dtype=torch.float16)
        cutegen.scaled_mm(*arguments, **SWIZZLED, out=out)
        close(out, wanted)
    said = [each.getMessage() for each in caplog.records if "torch computes such calls instead" in each.getMessage()]
    assert len(said) == 1
    assert "matmul_e4m3_tn_1x32_1x32: found out" in said[0]
    assert planted.served == 1


def _exchanged(ready: Any) -> Any:
    names = {"scale_a": "scale_b", "scale_b": "scale_a"}
    return replace(ready, names=tuple(names.get(each, each) for each in ready.names))


@pytest.mark.slow
@pytest.mark.dsl
def test_factors_of_the_other_operand_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = eager.prepare_call
    monkeypatch.setattr(eager, "prepare_call", lambda *given, **named: _exchanged(real(*given, **named)))
    arguments, wanted = of_8_bits("mxf8")
    found = cutegen.scaled_mm(*arguments, **SWIZZLED, output_dtype=torch.float32)
    assert list(first_use._right.values()) == [False]
    close(found, wanted)


@pytest.mark.slow
@pytest.mark.dsl
def test_a_lost_factor_of_all_values_is_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = eager.resolve

    def without(*given: Any) -> Any:
        resolved = real(*given)
        return replace(resolved, request=replace(resolved.request, ops=(), scale=None))

    monkeypatch.setattr(eager, "resolve", without)
    arguments, wanted = of_8_bits("nvf4")
    found = cutegen.scaled_mm(*arguments, **SWIZZLED, output_dtype=torch.float32)
    assert "found a kernel that takes no scale_m, scale_n; torch computes such calls instead" in caplog.text
    close(found, wanted)


def groups_of_8_bits(recipe: str, *, columns: bool = False) -> tuple[tuple[Any, ...], Any]:
    """The arguments of a call of `scaled_grouped_mm`, also transposed, and its result, from the bytes."""
    given, name = of_groups.RECIPES[recipe]
    a, of_a = cutegen.quantize(matrix(of_groups.ROOM, of_groups.K), **given, offs=of_groups.ENDS)
    weights = torch.stack([matrix(of_groups.N, of_groups.K) for _ in of_groups.GIVEN])
    b, of_b = cutegen.quantize(weights, **given)
    wanted = of_groups.expected(recipe, a, of_a, b, of_b)
    if columns:
        return (b, a.T, of_b, name, of_a, name), Bounded(wanted.value.T, wanted.error.T)
    return (a, b.mT, of_a, name, of_b, name), wanted


@pytest.mark.slow
@pytest.mark.dsl
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("recipe", of_groups.RECIPES)
def test_groups_with_factors_of_8_bits_are_compared_too(recipe: str, columns: bool) -> None:
    arguments, wanted = groups_of_8_bits(recipe, columns=columns)
    for _ in range(2):
        found = cutegen.scaled_grouped_mm(*arguments, **SWIZZLED, offs=of_groups.ENDS, output_dtype=torch.float32)
        close(found, wanted)
    assert list(first_use._right.values()) == [True]


@pytest.mark.slow
@pytest.mark.dsl
def test_groups_with_the_atoms_that_they_need_alone_are_copied_to_room_for_any_sizes() -> None:
    (a, b, of_a, name, of_b, _), wanted = groups_of_8_bits("mx")
    exact = of_a[: 4 * 128]
    for offs, scale, copied in ((of_groups.ENDS, exact, True), (of_groups.ENDS, of_a, False)):
        said = cutegen.explain(a, b, scale_a=scale, scale_b=of_b, offs=offs)
        assert ("copied: scale_a  it has 4 of the 5 atoms that any sizes need" in said) is copied
        terms: dict[str, Any] = {**SWIZZLED, "offs": offs, "output_dtype": torch.float32}
        found = cutegen.scaled_grouped_mm(a, b, scale, name, of_b, name, **terms)
        close(found, wanted)


@pytest.mark.slow
@pytest.mark.dsl
def test_parts_of_k_with_factors_of_8_bits_are_compared_too() -> None:
    """The atoms that torch has are those of the parts alone. A part that begins within a vector is NaN."""
    (a, of_a), (b, of_b) = of_groups.parts_of_k(140), of_groups.parts_of_k(of_groups.N)
    scales = [x.view(torch.float8_e8m0fnu) for x in (of_a, of_b)]
    ends, name = torch.tensor(of_groups.PARTS, dtype=torch.int32), "BlockWise1x32"
    wanted = of_groups.expected_of_parts(a, of_a, b, of_b)
    said = cutegen.explain(a, b.mT, scale_a=scales[0], scale_b=scales[1], offs=ends)
    assert "groups of k" in said
    assert "it has 12 of the 14 atoms that any sizes need" in said
    terms: dict[str, Any] = {**SWIZZLED, "output_dtype": torch.float32}
    for _ in range(2):
        found = cutegen.scaled_grouped_mm(a, b.mT, scales[0], name, scales[1], name, **terms, offs=ends)
        close(found, wanted)
    assert list(first_use._right.values()) == [True]
    anywhere = torch.tensor([48, 60, 192, 208, 337], dtype=torch.int32)
    found = cutegen.scaled_grouped_mm(a, b.mT, scales[0], name, scales[1], name, **terms, offs=anywhere)
    assert found[2].isnan().all()
    close(found[0], Bounded(wanted.value[0], wanted.error[0]))


class Shifted:
    """A call whose factors of A are those of another group: from a row of atoms on."""

    def __init__(self, ready: Any, shift_bytes: int) -> None:
        self.served, self.prepared, self.names = ready.served, ready.prepared, ready.names
        self.ready, self.shift_bytes = ready, shift_bytes

    def __call__(self, addresses: Any, scalars: Any, stream: int) -> None:
        self.ready({**addresses, "scale_a": addresses["scale_a"] + self.shift_bytes}, scalars, stream)


@pytest.mark.slow
@pytest.mark.dsl
def test_factors_of_another_group_are_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = eager.prepare_call
    monkeypatch.setattr(eager, "prepare_call", lambda *given, **named: Shifted(real(*given, **named), 8 * 128))
    (a, b, of_a, name, of_b, _), wanted = groups_of_8_bits("mx")
    more = torch.cat((of_a.view(torch.uint8), torch.zeros(128, 8, dtype=torch.uint8))).view(of_a.dtype)
    for _ in range(2):
        terms: dict[str, Any] = {**SWIZZLED, "offs": of_groups.ENDS, "output_dtype": torch.float32}
        found = cutegen.scaled_grouped_mm(a, b, more, name, of_b, name, **terms)
        close(found, wanted)
    assert caplog.text.count("torch computes such calls instead") == 1


def quantized_calls() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Bounded]]:
    """Calls by what they multiply, each with their arguments and the result that is quantized."""
    x, w = half(72, 256), half(160, 256).T
    mx, of_mx = of_8_bits("mxf8")
    rows, of_rows = groups_of_8_bits("mx")
    return {
        "f16": (cutegen.matmul, (x, w), {}, Exact(x, w).before()),
        "mxf8": (cutegen.scaled_mm, mx, SWIZZLED, of_mx),
        "groups of mxf8": (cutegen.scaled_grouped_mm, rows, {**SWIZZLED, "offs": of_groups.ENDS}, of_rows),
    }


@pytest.mark.slow
@pytest.mark.dsl
@pytest.mark.parametrize("what", ["f16", "mxf8", "groups of mxf8"])
def test_kernels_quantize_results_which_are_compared_too(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one is wrong, and where none may serve, torch quantizes the product that a kernel makes in f32."""
    function, arguments, terms, exact = quantized_calls()[what]
    for _ in range(2):
        close_quantized(function(*arguments, **terms, quantize="e4m3"), exact)
    assert list(first_use._right.values()) == [True]
    with cutegen.matmul_settings(family="tried"):
        close_quantized(function(*arguments, **terms, quantize="e4m3"), exact)
    real = first_use._difference
    monkeypatch.setattr(
        first_use, "_difference", lambda *given: "planted" if given[1].request.quantized else real(*given)
    )
    monkeypatch.setattr(first_use, "_right", {})
    call_cache.table.by_attributes.clear()
    close_quantized(function(*arguments, **terms, quantize="e4m3"), exact)
    assert list(first_use._right.values()) == [False, True]


def test_torch_computes_factors_of_8_bits_where_only_tried_families_may_serve() -> None:
    arguments, wanted = of_8_bits("nvf4")
    with cutegen.matmul_settings(family="tried"):
        found = cutegen.scaled_mm(*arguments, **SWIZZLED, output_dtype=torch.float32)
        a, b, of_a, _, of_b, _ = arguments
        assert "kernel    none: torch computes it in f32" in cutegen.explain(a, b, scale_a=of_a, scale_b=of_b)
    close(found, wanted)


def test_the_setting_says_which_families_may_serve() -> None:
    """Of a Blackwell: any is sm100 by its estimate, `tried` is what has run, and a name is that family."""
    a = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
    for asked, chosen in (("any", "sm100"), ("tried", "sm120"), ("sm80", "sm80"), ("sm100", "sm100")):
        with cutegen.matmul_settings(family=asked):
            said = cutegen.explain(a, a.T, arch="b200")
        assert f"family {chosen}," in said
    with cutegen.matmul_settings(family="sm90"), pytest.raises(RequestError, match=r"no kernel.*wgmma"):
        cutegen.matmul(half(64, 64), half(64, 64).T)
    with pytest.raises(RequestError, match="family: found \"sm81\"; expected 'any' or 'tried' or 'sm80'"):
        cutegen.matmul_settings(family="sm81")


def test_a_mistrusted_request_is_explained_as_it_is_served() -> None:
    a, w = half(64, 64), half(64, 64).T
    assert "family sm100," in cutegen.explain(a, w)
    providers.mistrust(eager.resolved_call(eager.Call(a, w)).request)
    assert "family sm100," not in cutegen.explain(a, w)


GATES = {"activation": "swiglu", "pairs": "halves", "first": "gate"}


def whole(*shape: int) -> Any:
    """Whole numbers of at most 3, whose products have sums without rounding, in any order."""
    return torch.randint(-3, 4, shape, dtype=torch.float32)


def joined(sums: Any) -> Bounded:
    """SwiGLU of exact sums, whose first half of columns are the gates."""
    exact = Bounded(sums.double(), torch.zeros_like(sums, dtype=torch.float64))
    return run_chain(exact, steps(None, "x, y -> silu(x) * y"), {}, pairs=Pairs("gate")).result


def gated_calls() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Bounded]]:
    """Calls with pairs of columns by what they multiply, each with its arguments and its result."""
    given, ends = RECIPES["mxf8"][0], of_groups.ENDS
    x, w = whole(of_groups.ROOM, 256) / 64, whole(len(of_groups.GIVEN), 512, 256)
    (x8, of_x), (one, of_one) = (cutegen.quantize(each, **given) for each in (x, w[0]))
    (rows, of_rows), (w8, of_w) = cutegen.quantize(x, **given, offs=ends), cutegen.quantize(w, **given)
    of_groups_too, begin = torch.zeros(len(x), 512, dtype=torch.float64), 0
    for weights, end in zip(w.double(), of_groups.GIVEN, strict=True):
        of_groups_too[begin:end] = x[begin:end].double() @ weights.T
        begin = end
    of_one_product, groups = joined(x.double() @ w[0].double().T), joined(of_groups_too)
    groups.error[begin:] = 0.0  # of no group
    factors = {"scale_a": of_rows, "scale_b": of_w}
    return {
        "f16": (cutegen.matmul, (x.half(), w[0].half().T), {}, of_one_product),
        "mxf8": (cutegen.matmul, (x8, one.T), {"scale_a": of_x, "scale_b": of_one}, of_one_product),
        "groups of f16": (cutegen.grouped_mm, (x.half(), w.half().mT), {"offs": ends}, groups),
        "groups of mxf8": (cutegen.grouped_mm, (rows, w8.mT), {"offs": ends, **factors}, groups),
    }


@pytest.mark.slow
@pytest.mark.dsl
@pytest.mark.parametrize("quantize", [None, "e4m3"])
@pytest.mark.parametrize("what", ["f16", "mxf8", "groups of f16", "groups of mxf8"])
def test_kernels_join_pairs_which_are_compared_too(
    what: str, quantize: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel has the product, its activation, and the quantization of that; torch has them where it may not."""
    function, arguments, terms, exact = gated_calls()[what]

    def hold() -> None:
        if quantize is None:
            close(function(*arguments, **terms, **GATES, out_dtype=torch.float32), exact)
        else:
            close_quantized(function(*arguments, **terms, **GATES, quantize=quantize), exact)

    with monkeypatch.context() as alone:
        for module in (eager, grouped):
            alone.setattr(module, "activated", None)  # torch joins nothing
        for _ in range(2):
            hold()
    assert list(first_use._right.values()) == [True]
    with cutegen.matmul_settings(family="tried"):
        hold()
    real = first_use._difference
    monkeypatch.setattr(first_use, "_difference", lambda *given: "planted" if given[1].request.pairs else real(*given))
    monkeypatch.setattr(first_use, "_right", {})
    call_cache.table.by_attributes.clear()
    hold()
    assert False in first_use._right.values()


@pytest.mark.slow
@pytest.mark.dsl
def test_pairs_that_no_kernel_joins_are_joined_by_torch() -> None:
    """Atoms of factors of interleaved columns have both members of pairs, as those of 72 columns of each do."""
    given = RECIPES["mxf8"][0]
    for rows, order in ((256, "interleaved"), (144, "halves")):
        x, w = whole(72, 256) / 64, whole(rows, 256)
        (x8, of_x), (w8, of_w) = (cutegen.quantize(each, **given) for each in (x, w))
        sums = x.double() @ w.double().T
        sums = sums if order == "halves" else torch.cat((sums[:, ::2], sums[:, 1::2]), 1)
        terms = {"scale_a": of_x, "scale_b": of_w, **GATES, "pairs": order}
        close(cutegen.matmul(x8, w8.T, **terms, out_dtype=torch.float32), joined(sums))
