"""Who takes part beside cutegen, and CUTLASS's Hopper example by a file with its interface."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutegen.bench import contenders as room
from cutegen.bench.contenders import others
from cutegen.bench.cutlass_examples import HOPPER_TILES, hopper_example
from cutegen.contract.launch import LaunchContract
from cutegen.errors import OutsideError
from cutegen.hardware import TARGETS
from cutegen.plan import plan
from cutegen.spec import load_spec

# What is used of CUTLASS's dense_gemm_persistent.py; a line of the file beside it for each time it is compiled.
HOPPER = """\
from types import SimpleNamespace


class HopperWgmmaGemmPersistentKernel:
    def __init__(self, acc_dtype, tile, cluster, swizzle, along_m):
        assert acc_dtype == "f32"
        self.tile, self.cluster = tile, cluster


def compile(kernel, a, b, c, clusters, stream, options):
    assert (a, b, c) == (("m", "k", 1), ("n", "k", 1), ("m", "n", 1))
    assert clusters == 100 // (kernel.cluster[0] * kernel.cluster[1])
    with open(__file__ + ".made", "a") as log:
        log.write(f"{kernel.tile}\\n")

    def run(a, b, c, stream):
        assert a.shape[2] == b.shape[2] == c.shape[2] == 1
        c[..., 0] = a[..., 0] @ b[..., 0].T
        c[0, 0, 0] = stream
    return run


names = iter("mnk" * 10)
runtime = SimpleNamespace(
    make_fake_compact_tensor=lambda dtype, shape, stride_order, assumed_align: shape, make_fake_stream=lambda: 0
)
cute = SimpleNamespace(runtime=runtime, compile=compile, sym_int=lambda divisibility=1: next(names))
info = SimpleNamespace(get_max_active_clusters=lambda size: 100 // size)
cutlass = SimpleNamespace(Float16="f16", Float32="f32", utils=SimpleNamespace(HardwareInfo=lambda: info))
"""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "dense_gemm_persistent.py"
    path.write_text(HOPPER)
    return path


@pytest.fixture
def on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "present_target", lambda: TARGETS["sm_90"])


def contract(name: str) -> LaunchContract:
    made: Any = plan(load_spec(name), "sm_90").launch
    return made


def names(spec: str, *files: Path) -> list[str]:
    return [name for name, _ in others(contract(spec), files)]


def test_everyone_who_is_here_takes_part(example: Path, on_hopper: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "find_spec", lambda name: name)
    hopper = [f"CUTLASS Hopper {tile}" for tile in HOPPER_TILES]
    plain = ["torch.matmul", "torch.matmul, reduced", "Triton", "QuACK, tuned"]
    assert names("sm90_hgemm_tn", example) == [*plain, *hopper]
    assert names("sm90_bf16_nt", example) == plain  # the examples are compiled for f16 TN
    assert names("sm80_tf32_tn") == ["torch.matmul", "Triton"]
    assert names("simt_sgemm_tn") == ["torch.matmul"]
    assert names("sm90_e4m3_tn") == ["torch._scaled_mm", "Triton"]


def test_hoppers_own_take_no_part_elsewhere(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "find_spec", lambda name: name)
    monkeypatch.setattr(room, "present_target", lambda: TARGETS["sm_80"])
    assert names("sm90_hgemm_tn", example) == ["torch.matmul", "torch.matmul, reduced", "Triton"]


def test_each_tile_is_compiled_once_and_launched_on_the_stream_of_the_call(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = SimpleNamespace(cuda_stream=3)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    for m, n, k in ((16, 8, 32), (24, 16, 8)):
        a, b, out = torch.randn(m, k).half(), torch.randn(n, k).half().T, torch.zeros(m, n).half()
        call = hopper_example(example, HOPPER_TILES[0], a, b, out)
        stream.cuda_stream += 1  # a graph is captured on another stream than the one that contenders were made on
        call()
        assert torch.equal(out[1:], (a @ b)[1:])
        assert out[0, 0] == stream.cuda_stream
    assert Path(f"{example}.made").read_text().splitlines() == [str(HOPPER_TILES[0].cta)]


def test_a_file_that_only_looks_like_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text("class HopperWgmmaGemmPersistentKernel:\n    pass\n")
    with pytest.raises(OutsideError, match=r"is not CUTLASS's dense_gemm_persistent\.py"):
        hopper_example(path, HOPPER_TILES[0], *(torch.zeros(8, 8),) * 3)
