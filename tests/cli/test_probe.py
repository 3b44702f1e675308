"""A probe on the command line: what is predicted of a thread, what it received, and what a probe is not asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutegen.run import Probe, Registers
from cutegen.verify import probes
from cutegen.verify.counts import LaunchCounts
from cutegen.verify.probes import count_probe
from tests.cli.commands import Cli
from tests.plan.probes import fragments_by_hand

SPEC = "ldmatrix_probe"
ATOM = "SM80_16x8x16_F32F16F16F32_TN"
RUN = f"run {SPEC} --device cpu --arch sm_80"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(cache))


@pytest.mark.parametrize("thread", [0, 37, 127])
def test_show_predicts_the_registers_of_a_thread(thread: int, cli: Cli) -> None:
    table = cli(f"show {SPEC} s2r --thread {thread} --arch sm_80 --json").json
    assert table["thread"] == thread
    text = cli(f"show {SPEC} s2r --thread {thread} --arch sm_80").out
    for operand, modes in (("a", "m,k"), ("b", "n,k")):
        expected = fragments_by_hand(operand, ATOM)[thread].tolist()
        assert table[operand]["holds"] == expected
        assert f"Thread {thread}: which ({modes}) of a k-tile each register of tCr{operand.upper()} holds" in text
        for (x, k), (x1, k1) in zip(expected[::2], expected[1::2], strict=True):
            assert f"({x},{k}) ({x1},{k1})" in text


@pytest.mark.dsl
def test_run_counts_registers_and_compares(cli: Cli) -> None:
    outcome = cli(f"{RUN} --seed 5 --strict --problem 64,64,64 --json")
    table = outcome.json
    assert (outcome.code, outcome.err) == (0, "")
    assert (table["device"], table["problem"], table["seed"]) == ("cpu", [64, 64, 64], 5)
    assert table["registers"] == {x: {"total": 4096, "agreeing": 4096, "first_wrong": None} for x in "ab"}
    assert (table["ok"], table["as_predicted"]) == (True, True)
    assert {key: row["measured"] for key, row in table["wavefronts"].items()} == {"s2r.a": 128, "s2r.b": 128}
    # 4 warps x 2 stages: A 64 x 32 by two rows of warps, four matrices at once; B likewise, two at once.
    assert {key: row["measured"] for key, row in table["executed"].items()} == {
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16": 8 * 32 * 32 // (64 * 4),
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16": 8 * 32 * 32 // (64 * 2),
    }


def disturbed(execute: Callable[..., Any], disturb: Callable[[Registers], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        registers, report = execute(*arguments, **options)
        disturb(registers)
        return registers, report

    return call


@pytest.mark.dsl
def test_a_wrong_register_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thread 69 has the value after its register 9 of stage 1 swapped with thread 70's."""

    def swap(registers: Registers) -> None:
        table = registers.b.view(np.uint16)
        table[[69, 70], 32 + 19] = table[[70, 69], 32 + 19]

    monkeypatch.setattr(Probe, "execute", disturbed(Probe.execute, swap))
    outcome = cli(RUN)
    held = fragments_by_hand("b", ATOM)
    (found_n, found_k), (n, k) = held[70, 19], held[69, 19]
    where = "thread 69, register 9 of stage 1, tCrB(3,0,1)"
    wrong = f"{where}: found B({found_n},{found_k + 32}); expected B({n},{k + 32})"
    assert outcome.code == 1
    assert outcome.error == f"2 of 4,096 registers of B are wrong; the first is {wrong}"
    assert f"first wrong  {wrong}" in outcome.out
    assert ["result", "wrong"] in [line.split() for line in outcome.out.splitlines()]
    assert "4,094 of 4,096 registers" in outcome.out
    first = cli(f"{RUN} --json").json["registers"]["b"]["first_wrong"]
    assert (first["thread"], first["stage"], first["register"], first["place"]) == (69, 1, 9, [3, 0, 1])
    assert (first["found"], first["expected"]) == ([found_n, found_k + 32], [n, k + 32])


@pytest.mark.dsl
def test_a_register_that_nobody_wrote_is_no_element(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(registers: Registers) -> None:
        registers.a.view(np.uint16)[:] = 0xFFFF

    monkeypatch.setattr(Probe, "execute", disturbed(Probe.execute, forget))
    outcome = cli(RUN)
    assert outcome.code == 1
    assert "0 of 4,096 registers" in outcome.out
    assert "thread 0, register 0 of stage 0, tCrA(0,0,0): found bits of no element; expected A(0,0)" in outcome.error


@pytest.mark.dsl
def test_other_counts_than_predicted_are_a_warning_or_an_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def more_expected(*arguments: Any) -> LaunchCounts:
        counts = count_probe(*arguments)
        a = replace(counts.wavefronts["s2r.a"], predicted=1)
        return replace(counts, wavefronts={**counts.wavefronts, "s2r.a": a})

    monkeypatch.setattr(probes, "count_probe", more_expected)
    warned, refused = cli(RUN), cli(f"{RUN} --strict")
    assert (warned.code, refused.code) == (0, 1)
    assert "wavefronts s2r.a: 128 measured, 1 predicted" in warned.err
    assert "wavefronts s2r.a: 128 measured, 1 predicted" in refused.error


@pytest.mark.dsl
def test_build_finds_the_loads_and_nothing_else(cli: Cli) -> None:
    counts = cli(f"build {SPEC} --arch sm_90 --json").json["instructions"]
    assert counts["predicted"] == counts["emitted"]
    assert set(counts["emitted"]) == {
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16",
    }


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"run {SPEC} --problem 64,64,32", "--problem: found 64,64,32; a probe always uses 64,64,64"),
        (f"report {SPEC}", 'kind: found "ldmatrix_probe"; expected a GEMM, which can be measured'),
        (f"show {SPEC} epilogue", "show: found epilogue; expected mma, smem, s2r or partitions"),
        (f"show {SPEC} pipeline --format svg", "show: found pipeline; expected mma, smem, s2r or partitions"),
        (f"show {SPEC} s2r --thread 128", "--thread: found 128; expected 0 to 127"),
        (f"show {SPEC} --format svg", "--format: found no PART"),
    ],
)
def test_what_a_probe_is_not_asked_for(command: str, said: str, cli: Cli) -> None:
    outcome = cli(f"{command} --arch sm_80")
    assert outcome.code == 2
    assert said in outcome.error


def test_a_probe_is_drawn_as_its_gemm_is(cli: Cli) -> None:
    for part in ("mma", "smem", "s2r"):
        outcome = cli(f"show {SPEC} {part} --thread 37 --arch sm_80 --format svg")
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("<svg")


def test_list_and_plan_say_what_kind_it_is(cli: Cli) -> None:
    kinds = {row["name"]: row["kind"] for row in cli("list --json").json["specs"]}
    assert (kinds[SPEC], kinds["sm80_hgemm_tn"]) == (SPEC, "gemm")
    assert cli(f"plan {SPEC} --arch sm_80 --json").json["kind"] == SPEC
    assert cli("plan sm80_hgemm_tn --arch sm_80 --json").json["kind"] == "gemm"
    assert cli(f"show {SPEC} --arch sm_80 --json").json["kind"] == SPEC


@pytest.mark.dsl
def test_any_spec_is_probed_by_the_verb(cli: Cli) -> None:
    """A is M-major: its loads transpose."""
    table = cli("probe sm80_bf16_nn --device cpu --arch sm_80 --json").json
    assert table["ok"]
    assert cli("probe simt_sgemm_nt --device cpu").code == 2


@pytest.mark.dsl
def test_the_verb_is_run_of_a_probe(cli: Cli) -> None:
    options = "--device cpu --arch sm_80 --seed 3 --json"
    assert cli(f"probe {SPEC} {options}").json == cli(f"run {SPEC} {options}").json


def test_a_gpu_that_torch_does_not_see_is_a_request_to_the_machine(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    outcome = cli(f"probe {SPEC} --device cuda --arch sm_80")
    assert (outcome.code, outcome.out) == (3, "")
    assert "torch sees no GPU" in outcome.error
