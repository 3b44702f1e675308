"""What can be tested of the measuring scripts without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cutegen.analysis.counters import ASKED, LDMATRIX, OF_BULK, STORE_SECTORS, WAVEFRONTS, WGMMA, longer_k, predict
from cutegen.api import build_request
from cutegen.contract.problem import ProblemShape
from cutegen.plan import plan
from tests.gpu.cases import CASES, COUNTERS, MISTAKES, SANITIZE
from tests.gpu.counters import STORED, compared, must_equal, planned, store, stored, summary, wavefronts
from tests.gpu.pages import in_the_page
from tests.gpu.prebuild import with_mistake


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(COUNTERS)])
def test_every_measured_kernel_has_a_prediction_of_every_counter(name: str) -> None:
    made = plan(CASES[name], "sm_90")
    expected = predict(made.to_json(), ProblemShape(1024, 1024, 1024))
    if made.family == "sm90":
        assert set(expected) >= {*OF_BULK, STORE_SECTORS}
        m, n, k = made.atom.shape_mnk
        assert expected[WGMMA] == 4 * 1024**3 // (m * n * k)  # each of a warpgroup's warps counts
    else:
        assert set(expected) >= {*ASKED, STORE_SECTORS}
        assert expected["sm__inst_executed_pipe_tensor_op_hmma.sum"] == 1024**3 // (16 * 8 * 16)


def test_what_ncu_printed_is_stored_and_read_again(tmp_path: Path) -> None:
    """A launch that counts what is predicted, and one counter that is one more."""
    (name, table), *_ = planned().items()
    cube = ProblemShape(1024, 1024, 1024)
    longer = ProblemShape(1024, 1024, longer_k(table, cube.k))
    wrong = {LDMATRIX: f"{predict(table, cube)[LDMATRIX] + 1:,}"}
    printed = {size: (_launch(table, size, wrong if size == cube else {}),) for size in (cube, longer)}
    store(tmp_path / "ncu.csv", printed)
    again = stored(tmp_path / "ncu.csv")
    rows = compared({name: table}, again)[name]
    assert [row.counter for row in rows if not row.equal] == [LDMATRIX]
    assert len(rows) == len(predict(table, cube))
    assert "secret" not in (tmp_path / "ncu.csv").read_text()
    assert f"| `{LDMATRIX}` | 1 | 0 | 1 |" in "\n".join(summary({name: rows}))
    loads = f"{predict(table, cube)[f'{WAVEFRONTS}ldsm.sum']:,}"
    assert loads in list(wavefronts({name: rows}))[2].split(" | ")


def _launch(table: dict[str, Any], size: ProblemShape, other: dict[str, str]) -> dict[str, str]:
    counted = {counter: f"{count:,}" for counter, count in predict(table, size).items()}
    return {"ID": "0", "Host Name": "secret", "Kernel Name": f"{table['launch']['entry']}(int)", **counted, **other}


@pytest.mark.skipif(not STORED.exists(), reason="no output of ncu is stored")
def test_the_page_says_what_ncu_printed(request: pytest.FixtureRequest) -> None:
    rows = compared(planned(), stored())
    assert all(rows.values())
    assert [row for found in rows.values() for row in found if must_equal(row) and not row.equal] == []
    assert STORED.stat().st_size < 200_000
    in_the_page(request, "counters", [*summary(rows), "", *wavefronts(rows)])


def test_every_race_can_be_planted() -> None:
    for name, mistake in MISTAKES.items():
        right = build_request(CASES[mistake.case], "sm_90").source.text
        wrong = with_mistake(mistake).source.text
        assert right.replace(mistake.before, mistake.after) == wrong != right, name


def test_kernels_are_told_apart_by_their_names() -> None:
    entries = {plan(spec, "sm_90").launch.entry for spec in CASES.values()}
    assert len(entries) == len(CASES)
    assert all(entry.startswith((COUNTERS, SANITIZE)) for entry in entries)
