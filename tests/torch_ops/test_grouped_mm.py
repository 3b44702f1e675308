"""`cutegen.grouped_mm` of tensors in host memory, by torch and by the executor, against a loop in float64."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional  # noqa: E402

import cutegen  # noqa: E402
import cutegen.grouped_mm  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.contract.problem import Distribution  # noqa: E402
from cutegen.dispatch.model import planned  # noqa: E402
from cutegen.dispatch.request import Request  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from cutegen.torch_ops import grouped  # noqa: E402
from tests.house.documents import ROOT  # noqa: E402

ROOM, K, N = 37, 24, 16
GIVEN = {
    "some, none at both ends": [0, 5, 5, 30, 30],
    "one with all": [ROOM],
    "none": [0, 0],
    "any bits": [-7, 12, 3, 2**31 - 1, -(2**31)],
}
FORMS = ("m", "n", "k", "padded")
ACTS: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "silu": functional.silu}


@pytest.fixture(params=["torch", pytest.param("executor", marks=[pytest.mark.dsl, pytest.mark.slow])])
def computed_by(request: pytest.FixtureRequest, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors=request.param):
        yield request.param


def operands(form: str, groups: int, dtype: Any = torch.bfloat16, *, turned: bool = False) -> tuple[Tensor, Tensor]:
    """A and B of a form; `turned` with the other contiguous modes."""
    shapes = {
        "m": ((ROOM, K), (groups, K, N)),
        "n": ((groups, N, K), (K, ROOM)),
        "k": ((N, ROOM), (ROOM, K)),
        "padded": ((groups, ROOM, K), (groups, K, N)),
    }
    a, b = (torch.randn(shape).to(dtype) for shape in shapes[form])
    return (a.mT.contiguous().mT, b.mT.contiguous().mT) if turned else (a, b)


def named(form: str, given: list[int]) -> dict[str, Tensor]:
    return {"sizes" if form == "padded" else "offs": torch.tensor(given, dtype=torch.int32)}


def ranges(form: str, given: list[int]) -> list[slice]:
    found, begin = [], 0
    for number in given:
        end = min(max(number, begin), ROOM)
        found.append(slice(begin, end))
        begin = 0 if form == "padded" else end
    return found


def looped(
    form: str, a: Tensor, b: Tensor, given: list[int], bias: Tensor | None = None, act: str | None = None
) -> Tensor:
    """The same in a loop, in the operands' own type; zeros where no group is."""
    parts = []
    for group, part in enumerate(ranges(form, given)):
        x = (a if a.dim() == 2 else a[group])[part if form in ("m", "padded") else slice(None)]
        x = x[:, part] if form == "k" else x
        y = (b if b.dim() == 2 else b[group])[part if form == "k" else slice(None)]
        y = y[:, part] if form == "n" else y
        z = x @ y
        if bias is not None:
            z = z + (bias[group] if bias.dim() == 2 else bias[part] if form == "n" else bias)
        parts.append(z if act is None else ACTS[act](z))
    if form == "k":
        return torch.stack(parts)
    dim = 1 if form == "n" else 0
    if form == "padded":
        return torch.stack([functional.pad(each, (0, 0, 0, ROOM - each.shape[0])) for each in parts])
    left = ROOM - sum(each.shape[dim] for each in parts)
    return functional.pad(torch.cat(parts, dim), (0, left) if dim else (0, 0, 0, left))


SUMS = 2.0**-14
"""Some times what sums of 37 products of normal numbers in f32 err by."""


def close(found: Tensor, exact: Tensor) -> None:
    """Within the rounding of sums in f32, and of the result."""
    assert found.shape == exact.shape
    assert ((found.double() - exact).abs() <= torch.finfo(found.dtype).eps * exact.abs() + SUMS).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("turned", [False, True])
def test_each_form_is_the_loop(form: str, turned: bool, computed_by: str) -> None:
    for given in GIVEN.values():
        a, b = operands(form, len(given), turned=turned)
        close(cutegen.grouped_mm(a, b, **named(form, given)), looped(form, a.double(), b.double(), given))


def test_forms_are_those_of_torch(computed_by: str) -> None:
    ends = [3, 3, 20, 40]  # torch takes multiples of 16 bytes
    shapes = {"m": ((40, K), (4, K, N)), "n": ((4, N, K), (K, 40)), "k": ((N, 40), (40, K))}
    for one, other in shapes.values():
        a, b = torch.randn(one).bfloat16(), torch.randn(other).bfloat16()
        offs = torch.tensor(ends, dtype=torch.int32)
        close(cutegen.grouped_mm(a, b, offs=offs), functional.grouped_mm(a, b, offs=offs).double())
        lead = torch.tensor([0, *ends], dtype=torch.int32)
        assert torch.equal(cutegen.grouped_mm(a, b, cu_seqlens=lead), cutegen.grouped_mm(a, b, offs=offs))
    a, b = operands("padded", 4)
    close(cutegen.grouped_mm(a, b), torch.bmm(a.double(), b.double()))


@pytest.mark.parametrize(
    ("form", "per_group"), [("m", True), ("m", False), ("n", False), ("k", True), ("padded", True)]
)
def test_bias_activation_and_result_type(form: str, per_group: bool, computed_by: str) -> None:
    given = GIVEN["some, none at both ends"]
    a, b = operands(form, len(given), torch.float16)
    width = b.shape[-1]
    bias = torch.randn(len(given), width) if per_group else torch.randn(width)
    terms: dict[str, Any] = {"bias": bias, "activation": "silu", "out_dtype": torch.float32, **named(form, given)}
    exact = looped(form, a.double(), b.double(), given, bias.double(), "silu")
    found = cutegen.grouped_mm(a, b, **terms)
    assert found.dtype is torch.float32
    close(found, exact)


def test_activations_are_named_or_given_by_value() -> None:
    """As in a compiled call; modules of others and other functions are refused."""
    a, b = operands("m", 2)
    offs = named("m", [4, 30])["offs"]
    for value, name in (
        (torch.nn.GELU(), "gelu"),
        (torch.nn.GELU("tanh"), "gelu_tanh"),
        (functional.silu, "silu"),
        (torch.relu, "relu"),
    ):
        wanted = cutegen.grouped_mm(a, b, offs=offs, activation=name)
        assert torch.equal(cutegen.grouped_mm(a, b, offs=offs, activation=value), wanted)
        assert cutegen.explain(a, b, offs=offs, activation=value) == cutegen.explain(a, b, offs=offs, activation=name)
    call = torch.compile(cutegen.grouped_mm, fullgraph=True, backend="aot_eager")
    assert torch.equal(call(a, b, offs=offs, activation=torch.relu), wanted)
    for other in (torch.tanh, torch.nn.GELU, torch.nn.Hardtanh(), 3):
        with pytest.raises(RequestError, match="activation: found"):
            cutegen.grouped_mm(a, b, offs=offs, activation=other)


@pytest.mark.parametrize("form", ["m", "n", "padded"])
def test_what_no_group_has_is_zero_or_left(form: str, computed_by: str) -> None:
    given = [4, 9]
    a, b = operands(form, 2)
    inside = looped(form, torch.ones_like(a), torch.ones_like(b), given) != 0
    whole = cutegen.grouped_mm(a, b, **named(form, given))
    assert not whole[~inside].any()
    out = torch.full_like(whole, 7.0)
    assert cutegen.grouped_mm(a, b, out=out, **named(form, given)) is out
    assert (out[~inside] == 7.0).all()
    assert torch.equal(out[inside], whole[inside])
    kept = cutegen.grouped_mm(a, b, tail="keep", **named(form, given))
    assert torch.equal(kept[inside], whole[inside])


@pytest.mark.dsl
@pytest.mark.parametrize("form", ["m", "k"])
def test_the_executor_computes_forms_and_gradients(form: str, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        test_each_form_is_the_loop(form, False, "executor")
        test_gradients_are_those_of_the_loop(form, "silu", "executor")


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_loop(form: str, activation: str | None, computed_by: str) -> None:
    """NaN where no group is, in operands and in the gradient of the result, reaches nothing: gradients are 0 there."""
    given = [4, 4, 30]
    a, b = operands(form, 3)
    bias = torch.randn(ROOM if form == "n" else (3, b.shape[-1]), dtype=torch.bfloat16)
    inside = looped(form, torch.ones_like(a), torch.ones_like(b), given) != 0 if form != "k" else None
    exact = [x.double().requires_grad_() for x in (a, b, bias)]
    y = looped(form, exact[0], exact[1], given, exact[2], activation)
    grad = torch.randn(y.shape, dtype=torch.bfloat16)
    y.backward(grad.double())
    mask_a, mask_b = (each.grad == 0 for each in exact[:2])
    with torch.no_grad():
        for x, rest in ((a, mask_a), (b, mask_b)):
            if x.dim() == 2 or form == "padded":
                x[rest.all(-1, keepdim=True).expand_as(x) if form != "k" or x is b else rest] = torch.nan
    if inside is not None:
        grad[~inside] = torch.nan
    mine = [x.requires_grad_() for x in (a, b, bias)]
    found = cutegen.grouped_mm(mine[0], mine[1], bias=mine[2], activation=activation, **named(form, given))
    found.backward(grad)
    for one, other in zip(mine, exact, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        error = (one.grad.double() - other.grad).abs().max()
        assert error <= 2.0**-5 * max(1.0, float(other.grad.abs().max())), error  # NaN is not


def test_groups_reach_to_the_largest_end_if_ends_are_out_of_order() -> None:
    a, b = operands("n", 3)
    bias = torch.zeros(ROOM, requires_grad=True)
    found = cutegen.grouped_mm(a, b, bias=bias, **named("n", [30, 5, -1]))
    found.backward(torch.ones_like(found))
    assert torch.equal(bias.grad, torch.tensor([float(N)] * 30 + [0.0] * (ROOM - 30)))


def test_compiled_calls_are_whole_graphs_and_ops_are_sound() -> None:
    a, b = operands("m", 3)
    offs = named("m", [4, 4, 30])["offs"]

    def step(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
        return cutegen.grouped_mm(x, w, offs=ends, activation="silu").float().square().sum()

    grads = []
    for run in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        w = b.clone().requires_grad_()
        run(a, w, offs).backward()
        grads.append(w.grad)
    assert torch.equal(*grads)
    ops, sizes = torch.ops.cutegen, torch.tensor([3, 0], dtype=torch.int32)
    for form, given in (("m", offs), ("padded", sizes)):
        x, y = (each.float().requires_grad_() for each in operands(form, given.numel()))
        which = (given, None) if form == "m" else (None, given)
        torch.library.opcheck(ops.grouped_mm, (x, y, *which))
        torch.library.opcheck(ops.grouped_mm_aux, (x, y, *which, None, "silu"))
    torch.library.opcheck(ops.grouped_mm_out, (a, b, offs), {"out": torch.empty(ROOM, N, dtype=a.dtype)})


class Experts(torch.nn.Module):  # type: ignore[misc]
    """A layer of experts and a dense one."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(3, N, K))
        self.after = cutegen.Linear(N // 2, 5)

    def forward(self, rows: Tensor, ends: Tensor) -> Tensor:
        pairs = {"activation": "swiglu", "pairs": "halves", "first": "gate"}
        return self.after(cutegen.grouped_mm(rows, self.weights.mT, offs=ends, **pairs))


@pytest.mark.slow
def test_another_process_runs_an_exported_program_after_the_import_that_the_page_names(tmp_path: Path) -> None:
    page = " ".join((ROOT / "docs" / "pytorch.md").read_text().split())
    (named,) = re.findall(r"`(import cutegen\.torch_ops\.\w+)`[^.]*loads an exported program", page)
    layer, given = Experts(), (torch.randn(ROOM, K), torch.tensor([5, 5, 30], dtype=torch.int32))
    torch.export.save(torch.export.export(layer, given), tmp_path / "layer.pt2")
    torch.save((given, layer(*given)), tmp_path / "given.pt")
    program = (
        f"import torch; {named}; given, wanted = torch.load('given.pt');"
        "torch.testing.assert_close(torch.export.load('layer.pt2').module()(*given), wanted)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, env=environment)


def test_autocast_casts_the_operands() -> None:
    a, b = operands("m", 2, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = cutegen.grouped_mm(a, b, **named("m", [4, 30]))
    assert found.dtype is torch.bfloat16


@pytest.mark.dsl
def test_arrays_are_computed_by_the_executor(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    a, b = operands("m", 3, torch.float16)
    found = cutegen.grouped_mm(a.numpy(), b.numpy(), offs=np.array([4, 4, 30], np.int32), out_dtype=np.float32)
    close(torch.from_numpy(found), looped("m", a.double(), b.double(), [4, 4, 30]))


def test_what_does_not_fit_is_told() -> None:
    a, b = operands("m", 3)
    offs = torch.zeros(3, dtype=torch.int32)
    halves = {"pairs": "halves", "first": "gate"}
    for wrong, told in (
        ({}, "offs: found nothing with mat_a of 2 and mat_b of 3 dimensions"),
        ({"offs": offs.long()}, r"offs: found dtype .*64; expected int32; `offs.to\(torch.int32\)`"),
        ({"offs": offs[:2]}, "offs: found 2 groups; expected 3, one for each matrix of mat_b"),
        ({"offs": torch.zeros(4, dtype=torch.int32)}, "`cu_seqlens=`, if it begins with a 0"),
        ({"offs": offs, "cu_seqlens": offs}, "cu_seqlens: found together with offs"),
        ({"offs": offs, "sizes": offs}, "sizes: found together with offs"),
        ({"offs": offs, "bias": torch.zeros(5)}, r"bias: found shape \(5,\); expected \(3, 16\) or \(16,\)"),
        ({"offs": offs, "tail": "nan"}, "tail: found 'nan'; expected 'zero' or 'keep'"),
        ({"offs": offs, "expected": 0}, "expected: found 0"),
        ({"offs": offs, "pairs": "halves"}, "grouped_mm: pairs: found with activation=None"),
        ({"offs": offs, "activation": "swiglu", "pairs": "halves"}, "first: found None with swiglu"),
        ({"offs": offs, "activation": "swish"}, "grouped_mm: activation: found"),
        ({"offs": offs, "activation": "swigllu", **halves}, r"expected one of .* are pairs; did you mean swiglu\?$"),
        ({"offs": offs, "activation": "swiglu_oai(1.7)", **halves}, r"expected parameters.*_oai\(1.702, 7.0\)\"$"),
        ({"offs": offs, "activation": "swiglu_oai(nan, 7)", **halves}, "expected parameters, a factor and a limit"),
        ({"offs": offs, "out_dtype": "f33"}, "grouped_mm: out_dtype: found f33"),
        ({"offs": offs, "bias": torch.zeros(16).double()}, "operand bias: found dtype float64; .*; cast bias"),
        ({"cu_seqlens": torch.zeros(4).long()}, r"cu_seqlens: found dtype .*64; .*; `cu_seqlens.to\(torch.int32\)`"),
        ({"cu_seqlens": offs}, "cu_seqlens: found 3 elements; expected 4, a 0 and an end for .*; `offs=`, if"),
        ({"cu_seqlens": offs[0]}, r"cu_seqlens: found shape \(\); expected \(G \+ 1,\)"),
        ({"cu_seqlens": [0, 1, 2, 3]}, "cu_seqlens: found a list; expected a torch tensor"),
        ({"cu_seqlens": torch.zeros(4, dtype=torch.int32), "sizes": offs}, "sizes: found together with cu_seqlens"),
        ({"offs": offs, "out": torch.zeros(3, 3, dtype=a.dtype)}, r"out: found shape \(3, 3\)"),
    ):
        with pytest.raises((OperandError, RequestError), match=told):
            cutegen.grouped_mm(a, b, **wrong)
    with pytest.raises(OperandError, match=r"mat_b: found .* K = 16; expected K = 24, as in mat_a; `mat_b.mT`"):
        cutegen.grouped_mm(a, b.mT, offs=offs)
    with pytest.raises(OperandError, match="operand mat_b: found dtype f16; expected bf16 as in mat_a"):
        cutegen.grouped_mm(a, b.half(), offs=offs)
    with pytest.raises(OperandError, match=r"mat_b: found shape \(3, 24, 16\), so 3 groups; expected 2, as in mat_a"):
        cutegen.grouped_mm(a.expand(2, -1, -1), b)
    with pytest.raises(OperandError, match="mat_a: found a nested tensor"):
        cutegen.grouped_mm(torch.nested.nested_tensor([a, a], layout=torch.jagged), b, offs=offs)


@pytest.mark.parametrize("name", ["mat_b", "offs", "bias", "scale_a", "scale_b", "out"])
def test_a_tensor_on_another_device_is_refused(name: str) -> None:
    # A kernel that is handed an address of another device's memory stops the whole GPU context.
    a, b = operands("m", 3, torch.float16)
    given: dict[str, Any] = {"mat_b": b, "offs": torch.zeros(3, dtype=torch.int32), "bias": torch.zeros(3, N)}
    given |= {"scale_a": torch.ones(ROOM), "scale_b": torch.ones(3, N), "out": torch.zeros(ROOM, N, dtype=a.dtype)}
    given[name] = given[name].to("meta")
    with pytest.raises(OperandError, match=f"operand {name}: found device meta; expected cpu, the device of mat_a"):
        cutegen.grouped_mm(a, **given)


@pytest.mark.parametrize("activation", [None, "silu"])
def test_tensors_without_memory_have_results_without_memory(activation: str | None) -> None:
    a, b = (x.to("meta") for x in operands("m", 3))
    found = cutegen.grouped_mm(a, b, offs=torch.zeros(3, dtype=torch.int32, device="meta"), activation=activation)
    assert (found.device.type, found.shape, found.dtype) == ("meta", (ROOM, N), torch.bfloat16)


def test_a_result_that_operands_share_memory_with_is_refused_or_right(computed_by: str) -> None:
    memory = torch.randn(3, ROOM, ROOM, dtype=torch.float32).half()
    a, b = memory[0], torch.randn(ROOM, ROOM).half()
    ends = named("k", [5, 20, ROOM])
    with pytest.raises(OperandError, match=r"operand out: found memory shared with (mat_)?a;"):
        cutegen.grouped_mm(a, b, out=memory, **ends)
    pairs = {"activation": "swiglu", "pairs": "halves", "first": "gate"}  # of parts of K: torch joins the sums
    wanted = cutegen.grouped_mm(a, b[:, :36], **pairs, **ends)
    found = cutegen.grouped_mm(a, b[:, :36], out=memory[:, :, :18], **pairs, **ends)
    assert torch.equal(found, wanted)


def test_requests_are_read_back_and_share_buckets() -> None:
    from cutegen.torch_ops.grouped import GroupedCall, resolved_groups

    a, b = operands("m", 5)
    requests = [
        resolved_groups(GroupedCall(a[:rows], b, torch.zeros(5, dtype=torch.int32)), "h100").request
        for rows in (33, 37)
    ]
    assert requests[0] == requests[1]
    assert Request.from_json(requests[0].as_json(), "list") == requests[0]
    assert requests[0].name.startswith("grouped_m_packed_bf16")


def test_explain_says_in_which_operands_groups_begin_anywhere() -> None:
    """Boxes of tensor maps cannot begin there, so another family serves the call than with K contiguous."""

    def meta(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float16, device="meta")

    ends = torch.empty(4, dtype=torch.int32, device="meta")
    rows, weights, columns = meta(64, 512), meta(4, 64, 256), meta(64, 512)
    remark = "groups begin anywhere in rows of {},"
    for call, name in (((rows.mT, weights), "a"), ((meta(4, 256, 64), columns), "b")):
        said = cutegen.explain(*call, offs=ends, arch="sm_120")
        assert remark.format(name) in said
        assert "family sm80" in said.partition("kernel ")[2]
        assert "groups begin anywhere" not in cutegen.explain(*call, offs=ends, arch="sm_80")
    said = cutegen.explain(meta(4096, 1024), meta(4, 1024, 1024), offs=ends, arch="sm_90")
    assert "groups begin anywhere" not in said
    assert "family sm90" in said.partition("kernel ")[2]


@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("form", ["m", "n", "k"])
def test_every_layout_of_every_form_is_served_by_wgmma_in_place(form: str, transposed: str) -> None:
    """So are gradients: they are products of these forms, and the gradient of a result has either layout."""
    (groups, rows, k, n), ends = (8, 4096, 1024, 1536), torch.empty(8, dtype=torch.int32, device="meta")
    shapes = {
        "m": ((rows, k), (groups, k, n)),
        "n": ((groups, n, k), (k, rows)),
        "k": ((n, rows), (rows, k)),
    }[form]

    def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
        *batch, inner, outer = shape
        if name in transposed:
            return torch.empty(*batch, outer, inner, dtype=torch.bfloat16, device="meta").mT
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")

    a, b = (tensor(name, shape) for name, shape in zip("ab", shapes, strict=True))
    resolved = grouped.resolved_groups(grouped.GroupedCall(a, b, ends), "sm_90")
    assert (planned(resolved.request).family, {**resolved.copies}, resolved.out_copied) == ("sm90", {}, "")


@pytest.mark.parametrize("stored", ["(G, N, K)", "(G, K, N)"])
@pytest.mark.parametrize("activation", [None, "silu"])
def test_experts_and_their_gradients_are_served_by_wgmma_in_place(
    stored: str, activation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sums as well as of sums before an activation: nothing is copied, and all kernels are of family sm90."""
    (groups, rows, k, n), served = (4, 2048, 1024, 1536), []

    def empty(asked: grouped.GroupedCall) -> tuple[Tensor, Tensor | None]:
        resolved = grouped.resolved_groups(asked, "sm_90")
        served.append((planned(resolved.request).family, resolved.copies, resolved.out_copied))
        product, dtype = asked.product
        made = torch.zeros(product.result, dtype=dtype)
        return made, made.clone() if asked.aux else None

    monkeypatch.setattr(grouped, "compute", empty)
    x = torch.zeros(rows, k, dtype=torch.bfloat16, requires_grad=True)
    of_weight = (groups, n, k) if stored == "(G, N, K)" else (groups, k, n)
    w = torch.zeros(of_weight, dtype=torch.bfloat16, requires_grad=True)
    ends = torch.tensor([500, 500, 1100, 2000], dtype=torch.int32)
    y = cutegen.grouped_mm(x, w.mT if stored == "(G, N, K)" else w, offs=ends, activation=activation)
    y.backward(torch.zeros_like(y))
    assert served == [("sm90", {}, "")] * 3  # the result, and the gradients of x and of w


def test_explain_knows_calls_of_groups() -> None:
    x, ends = (
        torch.empty(512, 64, dtype=torch.float16, device="meta"),
        torch.empty(100, dtype=torch.int32, device="meta"),
    )
    w = torch.empty(100, 72, 64, dtype=torch.float16, device="meta")
    said = cutegen.explain(x, w.mT, offs=ends, arch="sm_80")
    assert "packed groups of m, chosen for 6 of M in each" in said
    assert "family sm80" in said
    shown = " ".join(said.split())
    assert all(f"{each} " in shown.partition("sizes of groups:")[2] for each in Distribution)
    assert re.search(r"the worst takes \d\.\d\d times the best", shown)
    assert "chosen for 64 of M" in cutegen.explain(x, w.mT, offs=ends, expected=64, arch="sm_80")
    with pytest.raises(TypeError, match="unexpected keyword argument 'ends'"):
        cutegen.explain(x, w.mT, offs=ends, ends=ends)


def test_with_batch_invariant_rows_choose_no_kernel() -> None:
    from cutegen.torch_ops.grouped import GroupedCall, resolved_groups

    def request(rows: int, groups: int) -> Request:
        a, b = torch.zeros(rows, K, dtype=torch.half), torch.zeros(groups, K, N, dtype=torch.half)
        return resolved_groups(GroupedCall(a, b, torch.zeros(groups, dtype=torch.int32)), "a100").request

    assert request(33, 2) != request(3300, 2)
    with cutegen.matmul_settings(batch_invariant=True):
        assert request(33, 2) == request(3300, 2) == request(70, 9)


@pytest.mark.dsl
def test_a_repeated_call_is_known_by_guards_alone(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other values, ends and `out`; gradients, autocast and other terms are noticed."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    a, b = operands("m", 3)
    with cutegen.matmul_settings(cpu_tensors="executor"):
        cutegen.grouped_mm(a, b, **named("m", [1, 2, 3]))
        out = torch.full((ROOM, N), 7.0, dtype=a.dtype)
        cutegen.grouped_mm(a, b, out=out, **named("m", [1, 2, 3]))
        monkeypatch.setattr(grouped, "compute", None)
        for given in ([4, 4, 30], [0, 0, 0], [ROOM, 3, 5]):
            a, b = operands("m", 3)
            exact = looped("m", a.double(), b.double(), given)
            close(cutegen.grouped_mm(a, b, **named("m", given)), exact)
            end, written = max(given), out._version
            kept = out[end:].clone()
            assert cutegen.grouped_mm(a, b, out=out, **named("m", given)) is out
            close(out[:end], exact[:end])
            assert torch.equal(out[end:], kept)
            assert out._version > written
        for terms in ({"expected": 3}, {"tail": "keep"}, {"activation": "relu"}):
            with pytest.raises(TypeError, match="not callable"):
                cutegen.grouped_mm(a, b, **named("m", given), **terms)
        with torch.autocast("cpu", torch.float16), pytest.raises(TypeError, match="not callable"):
            cutegen.grouped_mm(a, b, **named("m", given))
        with pytest.raises(TypeError, match="not callable"):
            cutegen.grouped_mm(a.requires_grad_(), b, **named("m", given))


@pytest.mark.dsl
def test_a_repeated_call_is_replayed_with_other_ends(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    a, b = operands("m", 3)
    with cutegen.matmul_settings(cpu_tensors="executor"):
        cutegen.grouped_mm(a, b, **named("m", [1, 2, 3]))
        monkeypatch.setattr(grouped, "resolved_groups", None)  # nothing is resolved again
        for given in ([4, 4, 30], [0, 0, 0], [ROOM, 3, 5]):
            close(cutegen.grouped_mm(a, b, **named("m", given)), looped("m", a.double(), b.double(), given))
        with pytest.raises(TypeError):  # another form
            cutegen.grouped_mm(a[:-1], b, **named("m", [4, 4, 30]))


@pytest.mark.parametrize(("pairs", "first"), [("halves", "gate"), ("halves", "up"), ("interleaved", "gate"), (8, "up")])
def test_pairs_of_columns_are_in_the_order_that_a_call_names(pairs: str | int, first: str) -> None:
    given = [4, 4, 30]
    a, b = operands("m", 3)
    exact = [x.double().requires_grad_() for x in (a, b)]
    sums = looped("m", *exact, given)
    if pairs == "halves":
        members = sums.chunk(2, -1)
    else:
        width = 1 if pairs == "interleaved" else int(pairs)
        members = tuple(sums.unflatten(-1, (-1, 2, width))[:, :, i].flatten(-2) for i in (0, 1))
    gate, up = members if first == "gate" else members[::-1]
    wanted = functional.silu(gate) * up
    mine = [x.requires_grad_() for x in (a, b)]
    terms = {"activation": "swiglu", "pairs": pairs, "first": first, **named("m", given)}
    found = cutegen.grouped_mm(*mine, **terms)
    assert found.dtype is torch.bfloat16
    assert ((found.double() - wanted).abs() <= 2.0**-8 * wanted.abs() + 2.0**-8).all()
    grad = torch.randn(wanted.shape, dtype=torch.bfloat16)
    found.backward(grad)
    wanted.backward(grad.double())
    for one, other in zip(mine, exact, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert (one.grad.double() - other.grad).abs().max() <= 2.0**-5 * other.grad.abs().max()


def test_calls_without_sizes_share_one_tensor_of_them() -> None:
    """One for each number of groups and rows; what others must see, and what is past the limit, is new."""
    a, b = torch.randn(3, 5, 16).bfloat16(), torch.randn(3, 16, 8).bfloat16()
    kept = grouped.every_row(a)
    assert kept.tolist() == [5, 5, 5]
    assert grouped.every_row(a.clone()) is kept
    assert grouped.every_row(a[:, :4]) is not kept
    with torch.inference_mode():
        assert grouped.every_row(torch.randn(3, 7, 16)).is_inference() is False
    with FakeTensorMode():
        assert grouped.every_row(torch.empty(3, 5, 16)) is not kept
    a.requires_grad_()
    for _ in range(2):
        y = cutegen.grouped_mm(a, b)
        y.float().sum().backward()
    torch.testing.assert_close(y.detach(), torch.bmm(a.detach(), b), rtol=0.02, atol=0.02)


def test_so_many_tensors_of_sizes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped, "_every_row", {})
    monkeypatch.setattr(grouped, "MOST_KEPT", 1)
    first, second = (torch.zeros(2, rows, 8) for rows in (3, 4))
    assert grouped.every_row(first) is grouped.every_row(first)
    assert grouped.every_row(second) is not grouped.every_row(second)


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["m", "padded", "k"])
def test_a_call_is_one_launch_on_a_gpu(form: str, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is copied, and what no group has is cleared by the same kernel."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    random, (rows, k, n) = torch.Generator().manual_seed(60), (256, 128, 192)
    of_a, of_b = {
        "m": ((rows, k), (3, k, n)),
        "padded": ((3, rows, k), (3, k, n)),
        "k": ((n, rows), (rows, k)),
    }[form]
    a, b = (torch.randn(shape, generator=random).bfloat16() for shape in (of_a, of_b))
    given = named(form, [70, 0, 200] if form == "padded" else [70, 70, 200])
    by_torch = cutegen.grouped_mm(a, b, **given)
    there, ends = [x.cuda() for x in (a, b)], {name: x.cuda() for name, x in given.items()}
    cutegen.grouped_mm(*there, **ends)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiled:
        found = cutegen.grouped_mm(*there, **ends)
    launched = [x.name for x in profiled.events() if x.device_type == torch.autograd.DeviceType.CUDA]
    assert len(launched) == 1
    assert "grouped" in launched[0]
    torch.testing.assert_close(found.cpu(), by_torch, rtol=2.0**-7, atol=k * 2.0**-14)
