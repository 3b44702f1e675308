"""CUTLASS's example as a contender, by a file with its interface: compiled once, with the configuration asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cutegen.bench.cutlass_examples import Configuration, cutlass_example

# What is used of CUTLASS's tensorop_gemm.py; a line of the file beside it for each time it is compiled.
FILE = """\
from types import SimpleNamespace

cutlass = SimpleNamespace(Float16="f16", Float32="f32")


class TensorOpGemm:
    _CTA_TILER_FP16_BF16 = (128, 128, 32)

    def __init__(self, ab_dtype, c_dtype, acc_dtype, atom_layout_mnk, is_m_major_c=False):
        self.cta_tiler, self.num_stages, self.warps = self._CTA_TILER_FP16_BF16, 4, atom_layout_mnk


def mark_dynamic_layout(a, b, c, leading_a, leading_b, leading_c, ab_dtype, c_dtype):
    for tensor, leading in ((a, leading_a), (b, leading_b), (c, leading_c)):
        assert tensor.stride(leading) == 1
        assert tensor.shape[0] == 1
    return a, b, c


def compile_bmm(mnkl, a, b, c, ab_dtype, c_dtype, acc_dtype, atom_layout_mnk):
    gemm = TensorOpGemm(ab_dtype, c_dtype, acc_dtype, atom_layout_mnk, False)

    def run(a, b, c, stream):
        c.copy_(a @ b)
        c[0, 0, 0], c[0, 0, 1], c[0, 0, 2] = gemm.cta_tiler[1], gemm.num_stages, gemm.warps[1]

    with open(__file__ + ".made", "a") as log:
        log.write("compiled\\n")
    return run
"""


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    path = tmp_path / "tensorop_gemm.py"
    path.write_text(FILE)
    return path


def product(path: Path, m: int, n: int, k: int, configuration: Configuration | None = None) -> torch.Tensor:
    """A result beyond the three elements in which the file above says how it was configured."""
    a, b, out = torch.randn(m, k).half(), torch.randn(n, k).half().T, torch.zeros(m, n).half()
    cutlass_example(path, a, b, out, configuration)()
    assert torch.equal(out[1:], (a @ b)[1:])
    return out


def test_it_is_compiled_once_for_all_problems(example: Path) -> None:
    for extents in ((16, 8, 32), (24, 16, 8)):
        assert product(example, *extents)[0, :3].tolist() == [128, 4, 2]
    assert Path(f"{example}.made").read_text().splitlines() == ["compiled"]


def test_a_configuration_reaches_its_class_and_no_other(example: Path) -> None:
    other = Configuration((128, 256, 64), 3, (2, 4, 1))
    assert product(example, 16, 8, 32, other)[0, :3].tolist() == [256, 3, 4]
    assert product(example, 16, 8, 32)[0, :3].tolist() == [128, 4, 2]
    assert product(example, 16, 8, 32, Configuration((128, 64, 32), 5))[0, :3].tolist() == [64, 5, 2]
