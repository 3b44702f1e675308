"""One page of predicted against obtained, on a built kernel: figures agree with what is known of it from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cutegen.analysis import counters, measured
from cutegen.analysis import report as room
from cutegen.analysis.report import report
from cutegen.api import build_request
from cutegen.bench.ceilings import Ceilings
from cutegen.build import Cache, build
from cutegen.cli.main import main
from cutegen.contract.problem import ProblemShape
from cutegen.errors import DeviceError, OutsideError
from cutegen.plan import plan
from cutegen.spec import load_spec
from tests.bench.conftest import result

pytestmark = pytest.mark.dsl

CUBE = ProblemShape(4096, 4096, 4096)
WORDS = ["report", "sm80_hgemm_tn", "--arch", "sm_90"]


@pytest.fixture(autouse=True)
def _without_gpu(monkeypatch: pytest.MonkeyPatch, kernels: Cache) -> None:
    """Neither GPU nor ncu."""

    def refuse() -> None:
        raise DeviceError("no GPU; look elsewhere")

    monkeypatch.setattr(measured, "require_gpu", refuse)
    monkeypatch.setattr(measured, "present_target", lambda: None)
    monkeypatch.setattr(measured.shutil, "which", lambda name: None)
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))


def table(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*WORDS, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_page_has_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--problem", "4096,4096,4096"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("sm80_hgemm_tn for sm_90, 4096x4096x4096\n")
    for title in (
        "registers per thread",
        "Memory accesses predicted per CTA",
        "Instructions in the PTX text",
        "Main loop in SASS",
        "SM cycles for one k-tile of one CTA",
        "Not measured: no GPU\n",
        "No hardware counters: no ncu on PATH",
    ):
        assert title in printed
    assert all(len(line) <= 100 for line in printed.splitlines())


def test_ctas_that_only_keep_a_multiprocessor_free_are_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A launch of few tiles has twice as many CTAs, half of which leave at once: 8 x 4 tiles are 32 CTAs' work."""
    assert plan(load_spec("sm90_hgemm_tn"), "sm_90").launch.spread
    assert main(["report", "sm90_hgemm_tn", "--arch", "sm_90", "--problem", "1024,1024,1024", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ctas"] == 32


def test_figures_agree_with_the_plan_and_the_listing(capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(load_spec("sm80_hgemm_tn"), "sm_90")
    found = table(capsys)
    assert (found["problem"], found["ctas"], found["k_tiles"]) == ([4096, 4096, 4096], 1024, 64)
    assert found["smem_bytes"] == made.smem_bytes
    assert found["spill_bytes"] == 0
    assert 128 < found["registers"] <= 255
    assert found["occupancy"]["obtained"]["registers_per_thread"] == found["registers"]
    assert found["instructions"]["predicted"] == found["instructions"]["emitted"]
    assert (found["k_tiles_per_turn"], found["main_loop"]["HMMA"], found["main_loop"]["LDSM"]) == (3, 3 * 128, 3 * 32)
    limits = {row["resource"]: row for row in found["limits"]}
    assert limits["issue slots"]["amount"] == pytest.approx(4 * sum(found["main_loop"].values()) / 3)
    assert limits["issue slots"]["cycles"] == limits["issue slots"]["amount"] / 4
    # 256 lines written, 512 wavefronts read; a tile reads a k-block, a quarter of a k-tile, more than its 64 k-tiles.
    assert limits["shared memory"]["cycles"] == 256 + 512 * (64 + 1 / 4) / 64
    assert limits["device memory"]["cycles"] is None
    assert found["ceilings"] is found["executed"] is found["waves"] is None
    assert found["results"] == found["counters"] == []
    assert (found["not_measured"], found["no_counters"]) == ("no GPU", "no ncu on PATH")
    assert found["no_main_loop"] is None


def test_what_no_counter_can_count_is_said_with_what_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the plan alone: neither GPU nor ncu is asked for that."""
    said = table(capsys, "--problem", "2000,2048,512")["no_counters"]
    assert said == ("2000x2048x512 is not a multiple of the CTA tile 128x128x64; --problem 2048,2048,512 is countable")


def test_a_batch_is_that_many_problems_of_a_launch(capsys: pytest.CaptureFixture[str]) -> None:
    once = table(capsys, "--problem", "2048,2048,512")
    found = table(capsys, "--problem", "2048,2048,512", "--batch", "3")
    assert (once["batch"], found["batch"], found["problem"]) == (1, 3, [2048, 2048, 512])
    assert (once["ctas"], found["ctas"], found["k_tiles"]) == (256, 768, once["k_tiles"])
    assert main([*WORDS, "--problem", "2048,2048,512", "--batch", "3"]) == 0
    assert capsys.readouterr().out.startswith("sm80_hgemm_tn for sm_90, 3 x 2048x2048x512\n")


def test_the_executor_counts_what_was_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    found = table(capsys, "--execute")["executed"]
    assert found["problem"] == [128, 128, 256]
    rows = {(kind, name): row for kind, table in found["counts"].items() for name, row in table.items()}
    assert {at for at, row in rows.items() if row["predicted"] != row["measured"]} == set()
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert rows["executed", mma]["measured"] == 128 * 128 * 256 // (16 * 8 * 16)
    assert main([*WORDS, "--execute"]) == 0
    printed = capsys.readouterr().out
    assert "Executed on the CPU, 128x128x256" in printed
    assert "not as predicted" not in printed


NARROW = """
family = "sm90"
problem = { a = { dtype = "f16", major = "k" }, b = { dtype = "f16", major = "k" }, c = { dtype = "f16", major = "n" } }
tile = { cta = [64, 16, 64], stages = 2 }
schedule = { swap = true }
"""


def test_a_swapped_kernel_is_executed_on_one_tile_of_a_call(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "narrow.toml"
    spec.write_text(NARROW)
    assert main(["report", str(spec), "--arch", "sm_90", "--problem", "16,4096,4096", "--execute", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ctas"], found["k_tiles"], found["executed"]["problem"]) == (64, 64, [16, 64, 192])
    # 16 x 4096 of A, 4096 x 4096 of B, 16 x 4096 of C, spread over 64 tiles of 64 k-tiles.
    limits = {row["resource"]: row["amount"] for row in found["limits"]}
    assert limits["device memory"] == pytest.approx(2 * 4096 * (16 + 4096 + 16) / (64 * 64))


def test_without_a_disassembler_the_rest_remains(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def missing(cubin: bytes) -> str:
        raise OutsideError("nvdisasm not found; install it")

    monkeypatch.setattr(room, "disassemble", missing)
    assert main(WORDS) == 0
    printed = capsys.readouterr().out
    assert "Main loop not disassembled: nvdisasm not found; install it" in printed
    assert "issue slots" not in printed
    assert "shared memory" in printed


def test_measured_rates_replace_the_cited_ones(ceilings: Ceilings, kernels: Cache) -> None:
    """1000 operations a cycle; 1.25 TB/s over 100 multiprocessors at 1 GHz are 12.5 bytes a cycle of each."""
    spec = load_spec("sm80_hgemm_tn")
    artifact = build(build_request(spec, "sm_90"), kernels)
    made = report(plan(spec, "sm_90"), artifact, CUBE)
    cycles = {limit.resource: limit.cycles for limit in made.limits(ceilings)}
    assert cycles["tensor cores"] == pytest.approx(2 * 128 * 128 * 64 / 1000)
    assert cycles["device memory"] == pytest.approx(3 * 4096 * 4096 * 2 / (32 * 32 * 64) / 12.5)
    assert made.waves(100) == 1024 / (100 * made.occupancy.ctas_per_sm)


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch, ceilings: Ceilings) -> None:
    """A GPU that has answered already, and an ncu that counts as predicted except for one."""
    target = plan(load_spec("sm80_hgemm_tn"), "sm_90").target
    commands: list[list[str]] = []

    def profile(ncu: str, kernels: str, child: list[str]) -> Any:
        commands.append(child)
        return {"sm80_hgemm_tn_0": {counters.MMA: 4096**3 // 2048, counters.BY_DIFFERENCE: 66 * len(commands)}}

    monkeypatch.setattr(measured, "require_gpu", lambda: None)
    monkeypatch.setattr(measured, "present_target", lambda: target)
    monkeypatch.setattr(measured.shutil, "which", lambda name: "/usr/bin/ncu")
    monkeypatch.setattr(measured, "measure_ceilings", lambda types, after_round: ceilings)
    monkeypatch.setattr(measured, "bench", lambda *_, **__: (result("sm80_hgemm_tn", CUBE, 2000.0, ours=True),))
    monkeypatch.setattr(measured.counters, "profile", profile)


@pytest.mark.usefixtures("with_gpu")
def test_with_a_gpu_times_and_counters_stand_beside(capsys: pytest.CaptureFixture[str]) -> None:
    found = table(capsys, "--problem", "4096,4096,4096")
    assert found["ceilings"]["sms"] == 100
    assert found["results"][0]["tflops"] == pytest.approx(68.7, abs=0.1)
    rows = {row["counter"]: (row["predicted"], row["measured"]) for row in found["counters"]}
    assert rows[counters.MMA] == (33_554_432, 33_554_432)
    assert rows[counters.BY_DIFFERENCE][1] == 64  # the second launch has 66 k-tiles more than the first's 64
    assert main([*WORDS]) == 0
    printed = capsys.readouterr().out
    assert "1,024 CTAs on 100 SMs are 5.12 waves: 85% of the CTA slots are used" in printed
    assert "Hardware counters of one launch (ncu)" in printed
    assert "TFLOP/s" in printed


@pytest.mark.usefixtures("with_gpu")
def test_a_kernel_for_another_gpu_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "sm80_hgemm_tn", "--arch", "sm_80"]) == 0
    printed = capsys.readouterr().out
    assert "Not measured: the kernel is for sm_80 and the GPU here is not" in printed


@pytest.mark.usefixtures("with_gpu")
def test_counters_of_a_cut_off_problem_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert table(capsys, "--problem", "1000,1000,1000")["counters"] == []
