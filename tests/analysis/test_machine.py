"""A report of a machine: bits against float64, kernels that fail as rows, and nothing private in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutegen.analysis import machine
from cutegen.analysis.machine_kernel import kernel_row
from cutegen.build import Cache
from cutegen.hardware import TARGETS
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import load_spec
from cutegen.verify.reference import histogram, nearest_bits, steps, steps_between
from tests.house.replay import printed

SPEC = "sm80_hgemm_tn"


@pytest.mark.parametrize("element", ["f16", "f32", "bf16", "e4m3", "s8"])
def test_steps_count_the_values_between(element: str) -> None:
    """Of any values: each found by walking that many neighbors up from the nearest one, also across zero."""
    random = np.random.default_rng(7)
    values = random.choice((-1, 1), 50) * np.exp2(random.uniform(-4, 4, 50))
    near = nearest_bits(values, element)
    assert not steps(near, values, element).any()
    if element in ("f16", "f32"):
        far = near
        for _ in range(3):
            far = np.nextafter(far, near.dtype.type(np.inf))
        assert (steps(far, values, element) == 3).all()
        tiny = np.array([np.finfo(near.dtype).smallest_subnormal])
        assert steps_between(tiny, -tiny, element).tolist() == [2]
    assert sum(histogram(steps(np.roll(near, 1), values, element)).values()) == 50


def test_messages_lose_their_paths() -> None:
    said = f"OSError: {Path.home()}/.cache/x/kernel.ptx, {Path.cwd()}/a.py:3 and 4096/2"
    assert machine.without_paths(said) == "OSError: kernel.ptx, a.py:3 and 4096/2"


def test_a_kernel_that_does_not_end_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LIMIT_S", 0.01)
    assert machine._row(SPEC, TARGETS["sm_80"], "cpu", 1) == {"error": "it did not end within 0.01 s"}


@pytest.mark.slow
@pytest.mark.dsl
def test_a_wrong_result_and_a_wrong_count_are_in_the_row(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose result is changed after it ran: one element by two steps, one by much."""
    planned = plan(load_spec(SPEC), "sm_80")
    assert isinstance(planned, GemmPlan)
    from cutegen.api import request_of
    from cutegen.build import build

    class Changed(Kernel):
        def execute(self, *given: Any, **named: Any) -> Any:
            report = super().execute(*given, **named)
            out = named["out"].view(np.int16)
            out[3, 4] += 2
            out[5, 6] ^= 1 << 14
            return report

    artifact = build(request_of(planned), kernels)
    right, wrong = (kernel_row(planned, kind(artifact), "cpu", 1) for kind in (Kernel, Changed))
    assert right["bits"]["ok"]
    assert right["executed_as_planned"]
    assert (wrong["bits"]["ok"], wrong["bits"]["wrong"] >= 1) == (False, True)
    assert wrong["bits"]["sha256"] != right["bits"]["sha256"]
    assert wrong["bits"]["steps_from_float64"]["256-"] == right["bits"]["steps_from_float64"]["256-"] + 1
    assert set(right["not_measured"]) == {"times", "torch"}


@pytest.mark.slow
@pytest.mark.dsl
def test_the_file_says_what_ran_and_nothing_private(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    printed(f"cutegen report {SPEC} --machine --arch sm_80 --out {out}")
    text = out.read_text()
    row = json.loads(text)["kernels"][SPEC]
    assert row["bits"]["ok"]
    assert row["emitted_as_planned"]
    assert row["executed_as_planned"]
    assert not [private for private in (str(Path.home()), str(Path.cwd()), "/tmp/", str(tmp_path)) if private in text]


@pytest.mark.gpu
def test_a_gpu_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    printed(f"cutegen report {SPEC} --machine --rounds 3 --out {out}")
    table = json.loads(out.read_text())
    row = table["kernels"][SPEC]
    assert table["device"]
    assert table["driver"]
    assert row["bits"]["ok"], row
    assert row["times"]["median_us"] > 0
    assert row["torch"]["most_steps"] >= 0
