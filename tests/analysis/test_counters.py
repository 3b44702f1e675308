"""Predicted hardware counters against ones that an H200 showed, and ncu's output read."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from cutegen.analysis import counters
from cutegen.analysis.counters import BULK_SECTORS_READ, BULK_SECTORS_WRITTEN, OF_BULK, STORE_WAVEFRONTS
from cutegen.contract.problem import ProblemShape
from cutegen.errors import OutsideError
from cutegen.plan import plan
from cutegen.spec import Epilogue, GemmSpec, Mma, Operand, S2r, S2rCopy, Schedule, load_spec
from tests.gpu.cases import CASES
from tests.run.wgmma import spec as wgmma

CUBE = ProblemShape(1024, 1024, 1024)
NCU = """\
==PROF== Connected to process 7
bk32_plain_0 1024,1024,1024: right, relative error 2.1e-04
"ID","Process ID","Kernel Name","sm__inst_executed_pipe_tensor_op_hmma.sum","smsp__inst_executed_op_ldsm.sum"
"","","","inst","inst"
"0","7","bk32_plain_0","128","133,120"
"1","7","other(int)","40.00","1"
"""


def predicted(name: str, problem: ProblemShape = CUBE) -> counters.Counters:
    return counters.predict(plan(CASES[name], "sm_90").to_json(), problem)


def test_a_plain_tile_conflicts_as_hardware_said() -> None:
    """Measured on an H200: 133,120 ldmatrix.x4 and 1,597,440 conflicts, 12 extra wavefronts each."""
    found = predicted("counters_bk32_plain")
    assert found[counters.LDMATRIX] == 133_120
    assert found[f"{counters.CONFLICTS}ld.sum"] == 1_597_440
    assert found[f"{counters.WAVEFRONTS}ldsm.sum"] == 133_120 * 16


def test_mma_and_cp_async_follow_from_the_problem() -> None:
    found = predicted("counters_bk64_swizzle_3_3_3")
    assert found[counters.MMA] == 1024**3 // (16 * 8 * 16)
    # 64 CTAs of 128x128 read 2 x 128 x 1024 halfs each, 16 bytes a thread and 32 threads an instruction.
    assert found[counters.CP_ASYNC] == 64 * 2 * 128 * 1024 * 2 // 16 // 32
    assert found[counters.STORE_SECTORS] == 1024 * 1024 * 2 // 32
    assert found[f"{counters.CONFLICTS}ld.sum"] == 0


def test_counters_of_other_types_follow_from_their_bytes() -> None:
    """The k-tiles of tf32 and s8 have as many bytes as those of f16, so as many copies and ldmatrix."""
    problems = {"sm80_hgemm_tn": 1024, "sm80_tf32_tn": 512, "sm80_s8_tn": 2048}
    found = {
        name: counters.predict(plan(load_spec(name), "sm_90").to_json(), ProblemShape(1024, 1024, k))
        for name, k in problems.items()
    }
    for counter in (counters.LDMATRIX, counters.CP_ASYNC, f"{counters.WAVEFRONTS}ldsm.sum"):
        assert len({table[counter] for table in found.values()}) == 1
    assert found["sm80_tf32_tn"][counters.MMA] == 1024 * 1024 * 512 // (16 * 8 * 8)
    assert counters.MMA not in found["sm80_s8_tn"]


OF_A_CUBE = {
    "cooperative": (32_768, 393_216, 16_384, 2_048, 256, 1_048_576, 65_536),
    "column_major": (65_536, 524_288, 16_384, 6_144, 256, 1_572_864, 65_536),
    "e4m3": (32_768, 262_144, 16_384, 4_096, 256, 1_048_576, 65_536),
}
"""What an H200 counted, in the order of OF_BULK."""


@pytest.mark.parametrize("name", OF_A_CUBE)
def test_wgmma_and_bulk_copies_count_as_hardware_said(name: str) -> None:
    """Two warpgroups read B twice, one once; boxes of A with M contiguous have 64 rows."""
    found = predicted(f"sanitize_wgmma_{name}")
    assert tuple(found[counter] for counter in OF_BULK) == OF_A_CUBE[name]
    assert found[counters.STORE_SECTORS] == 0
    assert counters.MMA not in found  # which counts wgmma of 16-bit types too


def test_clusters_and_exchanged_products_are_counted_in_whole_tiles() -> None:
    """64x64 tiles, two along M in a cluster; 64x32 of the exchanged product are 32x64 of a call's."""
    clustered, swapped = (plan(CASES[f"sanitize_wgmma_{name}"], "sm_90").to_json() for name in ("cluster_2x1", "swap"))
    assert "1024x64x64 is not a multiple" not in counters.unpredictable(clustered, ProblemShape(1024, 64, 64))
    assert "--problem 128,64,64 is countable" in counters.unpredictable(clustered, ProblemShape(64, 64, 64))
    assert "--problem 32,64,64 is countable" in counters.unpredictable(swapped, ProblemShape(16, 64, 64))
    assert counters.unpredictable(swapped, ProblemShape(32, 64, 64)) == ""
    both = replace(CASES["sanitize_wgmma_swap"], schedule=Schedule(swap=True, cluster=(2, 1)))
    table = plan(both, "sm_90").to_json()  # two 64x32 tiles of the exchanged product along its M, the call's N
    assert "--problem 32,128,64 is countable" in counters.unpredictable(table, ProblemShape(32, 64, 64))
    assert counters.unpredictable(table, ProblemShape(32, 128, 64)) == ""


def test_warps_side_by_side_load_the_same_fragments() -> None:
    """A k-tile of 128 x 64 halfs has 128 matrices. Four warps along M share B: 128 + 4 x 64, four an instruction.

    128 CTAs load 16 k-tiles, and the first k-block of four before the loop.
    """
    case = CASES["counters_bk64_swizzle_3_3_3"]
    spec = replace(case, tile=replace(case.tile, cta=(128, 64, 64)), mma=Mma(atom_layout=(4, 1, 1)))
    found = counters.predict(plan(spec, "sm_90").to_json(), CUBE)
    assert found[counters.LDMATRIX] == 128 * (128 + 4 * 64) // 4 * 65 // 4


def test_a_batch_is_counted_as_often_as_it_has_matrices() -> None:
    for name in ("counters_bk64_plain", "sanitize_wgmma_cooperative"):
        three = predicted(name, replace(CUBE, batch=3))
        assert three == {counter: 3 * count for counter, count in predicted(name).items()}


def test_stores_of_a_second_matrix_are_counted() -> None:
    """It is stored from registers: the four lanes of a row write 16 bytes at once, half of a sector."""
    spec = replace(load_spec("sm80_hgemm_tn"), epilogue=Epilogue(ops=("aux",)))
    found = counters.predict(plan(spec, "sm_80").to_json(), CUBE)
    assert found[counters.STORE_SECTORS] == 1024 * 1024 * 2 // 32 + 1024 * 1024 * 2 // 16


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 4)])
def test_what_a_cluster_shares_arrives_in_each_of_its_ctas(cluster: tuple[int, int]) -> None:
    """256 CTAs receive 16 k-tiles of A and of B, 64 rows of 128 bytes each, whichever CTA asked L2 for them."""
    found = counters.predict(plan(wgmma("shared", cta=(64, 64, 64), cluster=cluster), "sm_90").to_json(), CUBE)
    assert found[BULK_SECTORS_READ] == 256 * 16 * 2 * 64 * 128 // 32


@pytest.mark.parametrize(
    ("c", "ops", "smem", "written", "staged", "plain"),
    [
        ("f16", (), None, 2**21 // 32, 0, 0),
        ("f32", (), None, 2**22 // 32, 2**22 // 128, 0),
        ("f16", ("aux",), None, 2**21 // 32, 0, 2**21 // 16),
        ("f16", (), False, 0, 0, 2**21 // 16),
        ("f16", ("aux",), False, 0, 0, 2 * 2**21 // 16),
    ],
)
def test_results_of_warpgroups_are_written_by_bulk_copies_or_by_threads(
    c: str, ops: tuple[str, ...], smem: bool | None, written: int, staged: int, plain: int
) -> None:
    """2^20 elements. Of f16 stmatrix fills shared memory, of f32 plain stores do, 128 bytes in each wavefront.

    From registers the four lanes of a row write 16 bytes of f16 at once, half of a sector.
    """
    spec = wgmma("stored", "kkn", "f16", *ops, c=Operand(c, "n"), smem=smem)
    found = counters.predict(plan(spec, "sm_90").to_json(), CUBE)
    assert found[BULK_SECTORS_WRITTEN] == written
    assert found[STORE_WAVEFRONTS] == staged
    assert found[counters.STORE_SECTORS] == plain


SPLIT = replace(load_spec("sm80_hgemm_tn"), schedule=Schedule(split_k=2))


@pytest.mark.parametrize(
    ("spec", "problem", "why"),
    [
        (
            "sm80_hgemm_tn",
            ProblemShape(1000, 1024, 1024),
            "1000x1024x1024 is not a multiple of the CTA tile 128x128x64",
        ),
        ("sm80_hgemm_tn", ProblemShape(1024, 1024, 128), "K = 128 fills 2 of 3 stages"),
        (SPLIT, CUBE, "schedule.split_k = 1 is countable"),
        ("simt_sgemm_nt", CUBE, 'family = "sm80" is countable'),
        ("sm120_hgemm_tn", CUBE, 'family = "sm80" is countable'),
        (replace(CASES["counters_bk64_plain"], s2r=S2r(S2rCopy("universal"))), CUBE, "an ldmatrix as s2r.a.atom"),
    ],
)
def test_what_cannot_be_predicted_is_said_with_the_key_that_can(
    spec: GemmSpec | str, problem: ProblemShape, why: str
) -> None:
    table = plan(load_spec(spec) if isinstance(spec, str) else spec, "sm_90").to_json()
    said = counters.unpredictable(table, problem)
    assert why in said
    assert said.endswith("countable")


@pytest.mark.parametrize(
    "problem", [ProblemShape(1000, 1024, 1024), ProblemShape(1024, 1024, 128), ProblemShape(1, 1, 1)]
)
def test_the_problem_that_is_called_countable_is(problem: ProblemShape) -> None:
    table = plan(load_spec("sm80_hgemm_tn"), "sm_90").to_json()
    named = re.search(r"--problem (\d+),(\d+),(\d+) is countable", counters.unpredictable(table, problem))
    assert named is not None
    assert counters.unpredictable(table, ProblemShape(*map(int, named.groups()))) == ""


def test_a_split_kernel_is_countable_as_said() -> None:
    whole = replace(SPLIT, schedule=Schedule(split_k=1))
    assert counters.unpredictable(plan(whole, "sm_90").to_json(), CUBE) == ""


def test_the_compilers_registers_are_not_called_a_prediction() -> None:
    assert not any(name.startswith("launch__") for name in predicted("counters_bk32_plain"))


def test_ncus_table_is_read_behind_other_output() -> None:
    found = counters.read(counters.parse(NCU))
    assert found == {
        "bk32_plain_0": {counters.MMA: 128, counters.LDMATRIX: 133_120},
        "other": {counters.MMA: 40, counters.LDMATRIX: 1},
    }
    assert counters.parse("==ERROR== no permission\n") == ()


def test_only_what_both_sides_know_is_compared() -> None:
    rows = counters.compare({"a": 1, "b": 2}, {"b": 3, "c": 4, "a": 1})
    assert [(row.counter, row.equal) for row in rows] == [("b", False), ("a", True)]


@pytest.mark.parametrize(("name", "k_tiles_more"), [("counters_bk64_plain", 18), ("counters_bk32_plain", 36)])
def test_the_second_launch_has_whole_turns_and_whole_lines_more(name: str, k_tiles_more: int) -> None:
    """Turns of 3 k-tiles; of 32 halfs two make a line, so that pairs of turns are needed."""
    table = plan(CASES[name], "sm_90").to_json()
    assert counters.longer_k(table, 1024) == 1024 + k_tiles_more * table["tile"][2]


def test_cp_async_is_counted_by_difference() -> None:
    """16 k-tiles that count 100, 30 more for what has a source size; 18 k-tiles more in the other launch."""
    once, longer = {counters.BY_DIFFERENCE: 1630, "x": 5}, {counters.BY_DIFFERENCE: 3430, "x": 9}
    assert counters.by_difference(once, longer, 1024, 2176) == {counters.BY_DIFFERENCE: 1600, "x": 5}
    assert counters.by_difference({"x": 5}, longer, 1024, 2176) == {"x": 5}


def test_ncu_is_asked_again_without_counters_that_it_may_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fake(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[command.index("--metrics") + 1])
        refused = counters.STORE_SECTORS in asked[-1]
        return subprocess.CompletedProcess(command, int(refused), "" if refused else NCU, "")

    monkeypatch.setattr(subprocess, "run", fake)
    assert counters.profile("ncu", "^bk32", ["python", "-c", ""])["bk32_plain_0"][counters.LDMATRIX] == 133_120
    assert len(asked) == 3


def test_of_counters_that_ncu_does_not_know_only_those_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names one at a time."""
    asked, unknown = [], [OF_BULK[1], OF_BULK[4]]

    def fake(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[command.index("--metrics") + 1].split(","))
        named = next((name for name in unknown if name in asked[-1]), None)
        said = NCU if named is None else f"==ERROR== Failed to find metric {named}"
        return subprocess.CompletedProcess(command, int(named is not None), said, "")

    monkeypatch.setattr(subprocess, "run", fake)
    assert counters.profile("ncu", "^bk32", ["python", "-c", ""])
    assert [len(names) for names in asked] == [len(counters.ALL) - missing for missing in (0, 1, 2)]
    assert set(counters.ALL) - set(asked[-1]) == set(unknown)


def test_what_ncu_said_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = subprocess.CompletedProcess([], 1, "==ERROR== ERR_NVGPUCTRPERM", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refusal)
    with pytest.raises(OutsideError, match="ERR_NVGPUCTRPERM"):
        counters.profile("ncu", "^k", ["python"])
