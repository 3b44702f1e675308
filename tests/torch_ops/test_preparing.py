"""`prepare` of a model: the calls that its run makes, found without values, and the kernels that are built for them."""

from __future__ import annotations

import copy
import re
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build.record import write_counts  # noqa: E402
from cutegen.dispatch.prepared import Prepared  # noqa: E402
from cutegen.dispatch.provider import MODEL, Answer  # noqa: E402
from cutegen.dispatch.providers import Providers  # noqa: E402
from cutegen.dispatch.request import Request  # noqa: E402
from cutegen.errors import RequestError  # noqa: E402
from cutegen.pack.kernel_list import read_calls  # noqa: E402
from cutegen.torch_ops import eager  # noqa: E402
from tests.torch_ops.models import Decoder, Vision  # noqa: E402


class Shelf:
    """Has a kernel for each name and problem, and counts those that it opens; the first of each is built."""

    name = "a shelf"

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.kernels: dict[str, Any] = {}

    def answer(self, request: Request) -> Answer:
        key = f"{request.name} {request.problem.n}"  # one kernel for every number of rows

        def opened() -> Any:
            self.opened[key] += 1
            return self.kernels.setdefault(key, SimpleNamespace(artifact=SimpleNamespace(hit="_tn" not in key)))

        return Answer("it is there", opened, ready=key in self.kernels)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    made, mine = Providers(), Shelf()
    made.register(MODEL, mine)  # type: ignore[arg-type]
    monkeypatch.setattr("cutegen.dispatch.prepared.providers", made)
    return mine


def seen(monkeypatch: pytest.MonkeyPatch, run: Any) -> Counter[str]:
    """The requests that a run of ours makes with values, by torch in host memory."""
    found: list[str] = []
    real = eager.resolved_call

    def resolved(call: Any) -> Any:
        made = real(call)
        found.append(str(made.request))
        return made

    with monkeypatch.context() as patch:
        patch.setattr(eager, "resolved_call", resolved)
        run()
    return Counter(found)


def asked(prepared: Any) -> Counter[str]:
    return Counter({str(request): calls for request, calls in prepared.items()})


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `prepare` would build, without building it."""
    found: list[Any] = []

    def build(given: Any, progress: Any) -> Prepared:
        found.append(given)
        return Prepared((), 0.0)

    monkeypatch.setattr(import_module("cutegen.matmul"), "build_prepared", build)  # the name is the function's
    return found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("make", "x"),
    [(Decoder, torch.randint(64, (3, 8))), (Vision, torch.randn(4, 3, 16, 16))],
    ids=["decoder", "vision"],
)
def test_the_calls_are_those_of_a_real_run(
    make: Any, x: Any, grad: bool, requests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    cutegen.replace_linear(model, fold_activations=True)
    state = copy.deepcopy(model.state_dict())
    attributes = {name: sorted(vars(each)) for name, each in model.named_modules()}
    with torch.set_grad_enabled(grad):
        cutegen.prepare(model, x)
        assert asked(requests[0]) == seen(monkeypatch, lambda: model(x))
        if grad:
            cutegen.prepare(model, x, backward=True)
            outputs = model(x)
            backward = seen(monkeypatch, lambda: outputs.backward(torch.ones_like(outputs)))
            assert asked(requests[1]) == asked(requests[0]) + backward
            assert backward.total() == 2 * asked(requests[0]).total()
    assert all(torch.equal(state[name], each) for name, each in model.state_dict().items())
    assert attributes == {name: sorted(vars(each)) for name, each in model.named_modules()}
    assert not any("Fake" in type(each).__name__ for each in model.parameters())


def test_a_model_on_meta_is_prepared_for_a_target(requests: list[Any]) -> None:
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Linear(64, 128), nn.GELU()).to(torch.bfloat16), torch.empty(40, 64)
    cutegen.replace_linear(model, fold_activations=True)
    with torch.no_grad():
        cutegen.prepare(model, x.to(torch.bfloat16), arch="h100")
    ((request, calls),) = requests[0].items()
    assert (request.ops, request.bias, str(request.problem), request.target, calls) == (
        ("bias_n", "gelu_erf"), "bf16", "48x128x64", "sm_90", 1,
    )  # fmt: skip


def test_autocast_names_and_main_grad_are_as_in_a_run(requests: list[Any]) -> None:
    class Named(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 32, bias=False)
            self.kept = None

        def forward(self, x: Any, *, scale: float) -> Any:
            self.kept = scale * self.layer(x)  # a model that keeps what it computes
            return self.kept

    model = Named()
    cutegen.replace_linear(model)
    model.layer.weight.main_grad = torch.zeros(32, 16)
    with torch.autocast("cpu", torch.bfloat16):
        cutegen.prepare(model, torch.randn(8, 16), scale=2.0, backward=True)
    forward, to_main = requests[0]
    assert (forward.a.dtype, forward.ops) == ("bf16", ())
    assert (to_main.c.dtype, to_main.ops) == ("f32", ("beta",))
    assert model.kept is None
    assert model.layer.weight.main_grad.eq(0).all()


class Experts(nn.Module):  # type: ignore[misc]
    """A layer of experts, whose rows are known on the device alone."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(4, 32, 16))

    def forward(self, x: Any, ends: Any) -> Any:
        """(rows, 16) -> (rows, 32)."""
        return cutegen.grouped_mm(x, self.up.mT, offs=ends, activation="silu")


@pytest.mark.parametrize("grad", [False, True])
def test_groups_of_experts_are_calls_as_well(grad: bool, requests: list[Any]) -> None:
    x, ends = torch.randn(24, 16), torch.tensor([3, 9, 20, 24], dtype=torch.int32)
    with torch.set_grad_enabled(grad):
        cutegen.prepare(Experts(), x, ends, backward=grad)
    (forward, *gradients) = requests[0]
    assert forward.problem.groups == 4
    assert (forward.ops, len(gradients)) == ((("aux", "silu"), 1) if grad else (("silu",), 0))  # x needs none


class Peeks(nn.Module):  # type: ignore[misc]
    """A run that depends on values."""

    def forward(self, x: Any) -> Any:
        """Return as many rows as the first element says."""
        return x[: int(x[0, 0].item())]


class Locked(nn.Module):  # type: ignore[misc]
    """Has something that Python cannot copy."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = (row for row in [])


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda: cutegen.prepare(Peeks(), torch.ones(3, 3)), r"run depends on values .* CUTEGEN_RECORD=calls\.toml"),
        (lambda: cutegen.prepare(Locked()), r"found a Locked that cannot be copied \(TypeError: .*generator"),
        (lambda: cutegen.prepare(nn.Linear(4, 4), torch.ones(3, 4), rows=[1]), "rows: found with a model"),
        (lambda: cutegen.prepare(nn.ReLU(), torch.ones(3), backward=True), "found no output that requires grad"),
        (lambda: cutegen.prepare(torch.ones(3, 3), torch.ones(3, 3), backward=True), "backward: found with a call"),
    ],
)
def test_what_cannot_be_prepared_is_refused(prepare: Any, said: str) -> None:
    with pytest.raises(RequestError, match=rf"^prepare: .*{said}"):
        prepare()


def test_it_lists_kernels_with_their_calls_times_and_hits(shelf: Shelf) -> None:
    model, lines = Decoder(depth=3), []
    cutegen.replace_linear(model)
    with torch.no_grad():
        prepared = cutegen.prepare(model, torch.randint(64, (2, 8)), progress=lines.append)
    assert len(prepared) == int(prepared) == 2  # n of 32, and n of 64
    assert prepared.calls == 3 * 7 + 1
    assert prepared.hits == 0
    assert {each.calls for each in prepared} == {3 * 5, 3 * 2 + 1}
    assert sum(shelf.opened.values()) == len(lines) == 3  # K of 32 and 64 with n of 32
    assert lines[-1].startswith("3 of 3: matmul_f32_tn for 16x")
    first, head, *rows = str(prepared).splitlines()
    assert first.startswith("2 kernels for 22 calls in ")
    assert first.endswith(" s, 0 found in the cache; from a shelf")
    assert head.split() == ["kernel", "problems", "target", "calls", "s"]
    assert sorted(row.split()[1] for row in rows) == ["16x32x32,", "16x64x32"]
    assert all(each.seconds <= prepared.seconds for each in prepared)
    with torch.no_grad():
        again = cutegen.prepare(model, torch.randint(64, (2, 8)))
    assert again.hits == len(again) == 2
    assert "found" in str(again)
    one, other = again.kernels
    mixed = replace(again, kernels=(one, replace(other, provider="a pack")))
    assert [line.split()[-1] for line in str(mixed).splitlines()[1:]] == ["from", "shelf", "pack"]


def test_a_kernel_that_cannot_be_built_is_the_error(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "answer", lambda request: Answer("none today"))
    with pytest.raises(RequestError, match=r"found no kernel for .*a shelf: none today"):
        cutegen.prepare(torch.empty(8, 8, device="meta"), torch.empty(8, 8, device="meta"))
    assert int(cutegen.prepare(torch.empty(0, 8), torch.empty(8, 8))) == 0


def test_a_model_that_calls_nothing_of_ours_needs_nothing(shelf: Shelf) -> None:
    said = str(cutegen.prepare(nn.Linear(4, 4), torch.ones(2, 4)))
    assert re.fullmatch(r"0 kernels for 0 calls in .*: no product here .* `cutegen.replace_linear\(model\)` .*", said)
    assert not shelf.opened


def test_a_recorded_preparation_counts_the_calls_of_the_run(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_RECORD", str(tmp_path / "calls.toml"))
    model = Decoder(depth=2)
    cutegen.replace_linear(model)
    with torch.no_grad():
        cutegen.prepare(model, torch.randint(64, (3, 7)))
    write_counts()
    counted = {(str(each.problem), each.times) for each in read_calls(tmp_path / "calls.toml")}
    assert counted == {("21x32x32", 8), ("21x64x32", 5), ("21x32x64", 2)}
