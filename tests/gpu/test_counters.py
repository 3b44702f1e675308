"""What can be tested of the measuring scripts without a GPU."""

from __future__ import annotations

import pytest

from cutegen.plan import plan
from cutegen.tune.counters import ASKED, STORE_SECTORS, predict
from cutegen.tune.suites import Extents
from tests.gpu.cases import CASES, COUNTERS, SANITIZE


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(COUNTERS)])
def test_every_measured_kernel_has_a_prediction_of_every_counter(name: str) -> None:
    expected = predict(plan(CASES[name], "sm_90").to_json(), 200, Extents(1024, 1024, 1024))
    assert set(expected) >= {*ASKED, STORE_SECTORS}
    assert expected["sm__inst_executed_pipe_tensor_op_hmma.sum"] == 1024**3 // (16 * 8 * 16)


def test_kernels_are_told_apart_by_their_names() -> None:
    entries = {plan(spec, "sm_90").launch.entry for spec in CASES.values()}
    assert len(entries) == len(CASES)
    assert all(entry.startswith((COUNTERS, SANITIZE)) for entry in entries)
