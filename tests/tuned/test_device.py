"""What a record says of the GPU that it was measured on."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from cutegen.tuned.record import DeviceFacts


def test_a_device_is_a_frozen_value_with_gaps() -> None:
    device = DeviceFacts(name="NVIDIA H200", multiprocessors=132)
    assert (device.driver, device.power_limit_w) == (None, None)
    with pytest.raises(FrozenInstanceError):
        device.name = "another"  # type: ignore[misc]
