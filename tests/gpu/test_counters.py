"""What can be tested of the measuring scripts without a GPU."""

from __future__ import annotations

import pytest

from cutegen.plan import plan
from tests.gpu.cases import CASES, COUNTERS, SANITIZE
from tests.gpu.counters import ASKED, REPORTED_ONLY, STORE_SECTORS, Row, parse, predict, table

RAW_PAGE = """\
counters_bk32_plain 1024,1024,1024: right, relative error 2.0e-04
==PROF== Connected to process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","launch__registers_per_thread","{ldsm}"
"","","","","","","","register/thread","inst"
"0","4711","python3.12","127.0.0.1","counters_bk32_plain_0","1","7","230","133,120"
"1","4711","python3.12","127.0.0.1","counters_bf16_0(int, int)","1","7","228","1597440.0"
==PROF== Disconnected
"""


def test_ncus_raw_page_is_read() -> None:
    counter = "smsp__inst_executed_op_ldsm.sum"
    assert parse(RAW_PAGE.replace("{ldsm}", counter)) == {
        "counters_bk32_plain": {"launch__registers_per_thread": 230, counter: 133120},
        "counters_bf16": {"launch__registers_per_thread": 228, counter: 1597440},
    }
    assert parse("==ERROR== no counters here") == {}


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(COUNTERS)])
def test_every_measured_kernel_has_a_prediction_of_every_counter(name: str) -> None:
    expected = predict(plan(CASES[name], "sm_90").to_json(), {"registers": 200}, (1024, 1024, 1024))
    assert set(expected) >= {*ASKED, STORE_SECTORS}
    assert expected["sm__inst_executed_pipe_tensor_op_hmma.sum"] == 1024**3 // (16 * 8 * 16)


def test_the_known_figures_of_64_byte_rows() -> None:
    """Without swizzle each ldmatrix.x4 takes 12 wavefronts more than its 4, as counted on hardware."""
    expected = predict(plan(CASES[f"{COUNTERS}bk32_plain"], "sm_90").to_json(), {"registers": 0}, (1024, 1024, 1024))
    instructions = expected["smsp__inst_executed_op_ldsm.sum"]
    # 64 CTAs x 4 warps, 4 + 4 each k-block, 2 k-blocks in each of 32 k-tiles and one before.
    assert instructions == 64 * 4 * 8 * 65 == 133_120
    assert expected["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 12 * instructions == 1_597_440


def test_kernels_are_told_apart_by_their_names() -> None:
    entries = {plan(spec, "sm_90").launch.entry for spec in CASES.values()}
    assert len(entries) == len(CASES)
    assert all(entry.startswith((COUNTERS, SANITIZE)) for entry in entries)


def test_the_table_says_which_differ() -> None:
    must, shown = "launch__registers_per_thread", next(iter(REPORTED_ONLY))
    lines = table([Row("counters_x", must, 1, 1), Row("counters_x", must, 1, 2), Row("counters_x", shown, 1, 2)])
    assert [line.split("|")[-2].strip() for line in lines.splitlines()[2:]] == ["yes", "NO", "no (reported only)"]
