"""The calls that `random_calls` makes on a GPU are such as `matmul` takes, and no two are alike."""

from __future__ import annotations

import pytest

import cutegen
from tests.gpu.random_calls import made

pytest.importorskip("torch")


def test_random_calls_have_kernels() -> None:
    calls = [made(seed, "meta") for seed in range(20)]
    assert len(set(map(str, calls))) == len(calls)
    for call in calls:
        assert "family" in cutegen.explain(call.a, call.b, arch="sm_90", **call.terms)
