"""The workers that `cutegen tune` opens on this machine: GPUs of one product, or a line that says why it has none."""

from __future__ import annotations

import pytest

from cutegen.cli import many
from cutegen.errors import DeviceError
from cutegen.executors.workers import PresentGpu

HERE = (PresentGpu("GPU-a", "NVIDIA H200"), PresentGpu("GPU-b", "NVIDIA A2"), PresentGpu("GPU-c", "NVIDIA H200"))


def test_gpus_of_the_first_ones_product_are_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many, "present_gpus", lambda: HERE)
    with many.opened_workers(None, 1) as workers:
        assert (workers.gpus, workers.product) == (2, "NVIDIA H200")
    assert "tuned for NVIDIA H200: NVIDIA A2 is left out; CUDA_VISIBLE_DEVICES selects GPUs" in capsys.readouterr().err


def test_no_gpu_is_one_line_with_two_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "present_gpus", lambda: ())
    said = r"found no GPU; expected one, or --scheduler ADDRESS .* CUDA_VISIBLE_DEVICES hides some"
    with pytest.raises(DeviceError, match=said) as caught:
        many.opened_workers(None, 1).__enter__()
    assert "\n" not in str(caught.value)
    with many.opened_workers(None, 1, gpu=False) as workers:
        assert (workers.gpus, workers.product, workers.target) == (1, "", "")
