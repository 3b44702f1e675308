"""`bench --from`: recorded calls beside torch, with stand-ins for clocks and GPUs; totals are weighted by counts."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutegen.bench import benchmark as room
from cutegen.bench import checked, recorded
from cutegen.bench.conditions import Conditions
from cutegen.bench.contenders import Entrant, Operands
from cutegen.bench.measure import Graph, Measurement, Regime
from cutegen.bench.recorded import CallTimes, bench_calls, entrant_of, in_torch, totals
from cutegen.bench.tables import calls_csv, calls_lines, calls_markdown, calls_table
from cutegen.build import record as recorder
from cutegen.cli import bench as door
from cutegen.cli.main import main
from cutegen.contract.problem import ProblemShape
from cutegen.dispatch.model import spec_of
from cutegen.dispatch.provider import MODEL, Answer
from cutegen.dispatch.providers import Providers
from cutegen.dispatch.request import Matrix, Request
from cutegen.errors import CheckError, SpecError
from cutegen.pack.kernel_list import RecordedCall, read_calls
from cutegen.plan import plan
from cutegen.spec import load_spec
from cutegen.verify import compare, expected_outcome, random_extras, random_operands
from tests.house.documents import ROOT

PAGE = (ROOT / "docs" / "json.md").read_text()
K, N = Matrix("f16", "k", 16), Matrix("f16", "n", 16)
LAYER = Request(a=K, b=K, c=N, ops=("bias_n", "gelu_erf"), bias="f16", problem=ProblemShape(64, 48, 32), target="sm_80")
PLAIN = Request(a=K, b=K, c=N, problem=ProblemShape(64, 48, 32), target="sm_80")


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list as a program writes it: a layer at two numbers of rows, and a product without counts."""
    monkeypatch.setenv("CUTEGEN_RECORD", str(tmp_path / "calls.toml"))
    monkeypatch.setattr(recorder, "_done", set())
    monkeypatch.setattr(recorder, "_counts", {})
    monkeypatch.setattr(recorder, "COUNTED_EVERY_S", 1e9)
    for request in (LAYER, PLAIN):
        recorder.record({"request": request.as_json()})
    recorder.count({"request": LAYER.as_json()}, (60, 48, 32, 1), 24)
    recorder.count({"request": LAYER.as_json()}, (7, 48, 32, 1), 2)
    recorder.write_counts()
    monkeypatch.delenv("CUTEGEN_RECORD")  # what measures is not recorded
    return tmp_path / "calls.toml"


class Fused:
    """A kernel of a request: the product and its epilogue in f32, rounded once; a wrong one spoils an element."""

    def __init__(self, request: Request, *, wrong: bool = False) -> None:
        made = plan(spec_of(request), "sm_80")
        self.contract, self.wrong = made.launch, wrong
        self.artifact = SimpleNamespace(plan_json=json.dumps(made.to_json()), hit=True)

    def __call__(self, a: Any, b: Any, *, out: Any, bias: Any = None) -> None:
        y = a.float() @ b.float()
        y = y if bias is None else torch.nn.functional.gelu(y + bias.float())
        out.copy_(y)
        out[3, 5] += self.wrong


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Every contender takes the microseconds that the returned table has for it; a graph is a list of calls."""
    takes = {"torch": 8.0, "matmul_f16_tn": 6.0, "matmul_f16_tn_bias_n_gelu_erf": 4.0}

    def timed(calls: dict[str, Callable[[], object]], *, after_round: Any, **options: Any) -> Any:
        after_round()
        for call in calls.values():
            call()
        return {name: Measurement.of([takes[name.rpartition(": ")[2].removesuffix(", ours")]] * 3) for name in calls}

    for name, made in (("random_operands", random_operands), ("random_extras", random_extras)):
        monkeypatch.setattr(checked, name, lambda *x, made=made, **named: made(*x, **{**named, "device": "cpu"}))

    def captured(calls: Any) -> Graph:
        return Graph(lambda: [call() for call in calls], len(calls))

    monkeypatch.setattr(checked, "captured", captured)
    monkeypatch.setattr(checked, "l2_bytes", lambda: 10_000)
    monkeypatch.setattr(room, "launch_times", timed)
    monkeypatch.setattr(
        room, "graph_times", lambda graphs, **named: timed({x: y.replay for x, y in graphs.items()}, **named)
    )
    providers = Providers()
    providers.register(MODEL, SimpleNamespace(name="the model", answer=lambda x: Answer("", lambda: Fused(x))))  # type: ignore[arg-type]
    monkeypatch.setattr(recorded, "providers", providers)
    monkeypatch.setattr(recorded, "present_target", lambda: plan(load_spec("sm80_hgemm_tn"), "sm_80").target)
    monkeypatch.setattr(recorded, "present_gpu_name", lambda: "Imaginary 100")
    return takes


@pytest.mark.parametrize(
    ("ops", "more"),
    [
        ((), {}),
        (("bias_n",), {"bias": "f16"}),
        (("bias_n", "relu"), {"bias": "f16"}),
        (("bias_n", "aux", "silu"), {"bias": "f32", "aux": N}),
        (("alpha", "beta", "bias_n", "gelu_tanh", "residual"), {"bias": "f16", "residual": N}),
        (("beta",), {}),
        (("alpha", "gelu_erf"), {}),
        (("scale_m", "scale_n", "residual"), {"scale": "f32", "residual": N}),
        (("aux",), {"aux": N}),
    ],
)
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_torch_computes_the_same_call(
    ops: tuple[str, ...], more: dict[str, Any], batch: int | None, dtype: str
) -> None:
    if dtype == "f32":
        more = {name: replace(each, dtype="f32") if isinstance(each, Matrix) else "f32" for name, each in more.items()}
    a, b, c = (replace(each, dtype=dtype) for each in (K, K, N))
    request = Request(a=a, b=b, c=c, ops=ops, problem=ProblemShape(24, 16, 40, batch or 1), target="sm_80", **more)
    contract = plan(spec_of(request), "sm_80").launch
    options: dict[str, Any] = {"seed": 7, "batch": batch, "framework": "torch"}
    x = Operands(*random_operands(contract, 24, 16, 40, **options), random_extras(contract, 24, 16, **options))
    make = in_torch(ops)
    assert make is not None
    x.out.fill_(float("nan"))
    make(x)()
    expected = expected_outcome(contract, x.a, x.b, x.extras).result
    assert compare(x.out, expected, dtype=dtype).rel_error < (4e-3 if dtype == "f16" else 1e-5)  # roundings between


def test_torch_has_no_call_of_an_expression_a_bias_of_rows_or_factors_of_blocks() -> None:
    assert in_torch(("bias_m",)) is None
    spec = replace(
        load_spec("sm80_hgemm_tn"), epilogue=replace(load_spec("sm80_hgemm_tn").epilogue, expression="x -> 2 * x")
    )
    assert recorded._theirs(spec) == []
    assert recorded._theirs(load_spec("sm90_e4m3_block_scaled")) == []
    assert [name for name, _ in recorded._theirs(load_spec("sm80_hgemm_tn"))] == ["torch"]


def measured(listed: Path, **options: Any) -> list[CallTimes]:
    return list(bench_calls(read_calls(listed), rounds=3, **options))


@pytest.mark.usefixtures("on_the_cpu")
def test_each_call_is_checked_timed_and_weighted_by_its_count(listed: Path) -> None:
    seen: list[str] = []
    times = measured(listed, before=lambda call: seen.append(str(call.problem)))
    assert seen == ["60x48x32", "7x48x32", "64x48x32"]
    assert [(str(x.call.problem), x.call.times, str(x.regime), x.x_torch) for x in times] == [
        (problem, count, regime, ratio)
        for problem, count, ratio in (("60x48x32", 24, 2.0), ("7x48x32", 2, 2.0), ("64x48x32", 1, 8 / 6))
        for regime in ("launch", "graph")
    ]
    for each in totals(times):
        assert (each.calls, each.torch_us, each.ours_us, each.left_out) == (27, 27 * 8.0, 26 * 4.0 + 6.0, 0)
        assert each.x_torch == pytest.approx(216 / 110)
    ours, theirs = times[0].ours, times[0].torch
    assert ours is not None
    assert theirs is not None
    assert 0 < ours.rel_error < theirs.rel_error < 1e-2  # torch rounds before the GELU
    assert times[0].provider == "the model"


@pytest.mark.usefixtures("on_the_cpu")
def test_a_wrong_kernel_ends_the_run_and_a_wrong_torch_is_left_out(
    listed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "mm", lambda a, b, out: out.copy_(2 * (a.float() @ b.float())))
    times = measured(listed, regimes=(Regime.GRAPH,))
    assert [each.torch is None for each in times] == [False, False, True]
    assert "torch is left out: relative error" in caplog.text
    (total,) = totals(times)
    assert (total.calls, total.left_out) == (26, 1)
    monkeypatch.setattr(recorded, "entrant_of", lambda call: (Entrant("mine", Fused(call.request, wrong=True)), ""))
    with pytest.raises(CheckError, match=r"mine at 60x48x32: .* wrong results are not timed"):
        measured(listed)


@pytest.mark.usefixtures("on_the_cpu")
def test_a_call_without_a_kernel_is_said_and_the_others_go_on(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = entrant_of

    def of(call: RecordedCall) -> Any:
        if call.request == PLAIN:
            raise SpecError(file="x", key="family", found="none", expected="one")
        return real(call)

    monkeypatch.setattr(recorded, "entrant_of", of)
    times = measured(listed, regimes=(Regime.GRAPH,))
    assert [each.ours is None for each in times] == [False, False, True]
    assert "family: found none" in times[-1].why
    assert times[-1].exit_code == 2
    assert totals(times)[0].left_out == 1


@pytest.mark.usefixtures("on_the_cpu")
def test_calls_of_groups_are_listed_and_not_measured(listed: Path) -> None:
    call = read_calls(listed)[0]
    times = list(
        bench_calls([replace(call, problem=ProblemShape(60, 48, 32, 1, 4))], rounds=3, regimes=(Regime.GRAPH,))
    )
    assert [(each.ours, each.exit_code) for each in times] == [(None, 0)]
    assert recorded.OF_GROUPS in calls_markdown(times, "x")


@pytest.mark.usefixtures("on_the_cpu")
def test_the_kernel_is_the_one_that_serves_the_call_here(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []

    def kernel_for(request: Request) -> Any:
        asked.append(request)
        return SimpleNamespace(kernel="k", provider="p")

    monkeypatch.setattr(recorded.providers, "kernel_for", kernel_for)
    entrant, provider = entrant_of(read_calls(listed)[0])
    assert (entrant.name, entrant.kernel, provider) == ("matmul_f16_tn_bias_n_gelu_erf", "k", "p")
    assert asked == [replace(LAYER, device="Imaginary 100")]


@pytest.fixture
def at_the_door(monkeypatch: pytest.MonkeyPatch, on_the_cpu: dict[str, float]) -> None:
    monkeypatch.setattr(door, "require_gpu", lambda: None)
    monkeypatch.setattr(door, "present_gpu_name", lambda: "Imaginary 100")
    monkeypatch.setattr(door, "conditions", lambda: Conditions("580.1", "13.0", {"torch": "2.11"}))
    monkeypatch.setenv("COLUMNS", "100")


TABLE = """\
3 calls measured on Imaginary 100

launches in a CUDA graph, operands larger than the L2 cache: 1.96 of torch's speed
  call                           problem   times  torch, us  cutegen, us  x torch  share  from
  matmul_f16_tn_bias_n_gelu_erf  60x48x32     24        8.0          4.0     2.00    87%  the model
  matmul_f16_tn_bias_n_gelu_erf  7x48x32       2        8.0          4.0     2.00     7%  the model
  matmul_f16_tn                  64x48x32      1        8.0          6.0     1.33     5%  the model
  total                                       27      216.0        110.0     1.96
"""


@pytest.mark.usefixtures("at_the_door")
def test_the_command_writes_text_markdown_csv_and_json(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--from", str(listed), "--rounds", "3"]
    assert main([*words, "--regime", "graph"]) == 0
    assert capsys.readouterr().out == TABLE
    for suffix in ("md", "csv", "json"):
        assert main([*words, "--out", str(listed.with_suffix(f".{suffix}"))]) == 0
    page = listed.with_suffix(".md").read_text()
    assert page.count("| call | problem |") == 2
    assert "| total |  | 27 | 216.0 | 110.0 | 1.96 |  |  |" in page
    rows = list(csv.DictReader(io.StringIO(listed.with_suffix(".csv").read_text())))
    assert len(rows) == 6
    assert (rows[0]["m"], rows[0]["times"], rows[0]["torch_us"], rows[0]["cutegen_us"]) == ("60", "24", "8.0", "4.0")
    table = json.loads(listed.with_suffix(".json").read_text())
    (keys,) = re.findall(r"^\| `cutegen bench --from LIST.toml` \| (.*) \|$", PAGE, re.MULTILINE)
    assert list(table) == re.findall(r"`(\w+)`", keys)
    assert table["calls"][0]["provider"] == "the model"
    assert [each["x_torch"] for each in table["totals"]] == [pytest.approx(216 / 110)] * 2


@pytest.mark.usefixtures("at_the_door")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x", "--from", "{}"], "SPEC: found x together with --from"),
        (["--from", "{}", "--problem", "1,2,3"], "--problem: found together with --from"),
        (["--from", "{}", "--out", "x.svg"], "--out: found x.svg, which ends with .svg; expected .txt or"),
        (["--from", "missing.toml"], "--from: found no file missing.toml"),
        ([], "bench: found neither SPEC nor --from LIST.toml"),
        (["sm80_hgemm_tn", "--batch", "4"], "--batch"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    words: list[str], said: str, listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *[each.format(listed) for each in words]]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("at_the_door")
def test_calls_without_kernels_are_the_exit_code(
    listed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of(call: RecordedCall) -> Any:
        raise CheckError("no | kernel")

    monkeypatch.setattr(recorded, "entrant_of", of)
    assert main(["bench", "--from", str(listed), "--regime", "graph"]) == 1
    captured = capsys.readouterr()
    assert "no call was computed by both; 27 calls left out of the totals" in captured.out
    assert "3 of 3 calls have no kernel here; the others are shown" in captured.err
    times = measured(listed)
    assert "no \\| kernel" in calls_markdown(times, "x")
    assert calls_table(times, Conditions("", "", {}))["totals"][0]["x_torch"] is None
    assert calls_csv([]) == "\n"
    assert list(calls_lines([], "x")) == ["0 calls measured on x"]


def test_a_batch_is_of_the_problems() -> None:
    assert door.choose_problems(["8,16,24"], None, 4) == (ProblemShape(8, 16, 24, 4),)
