"""GEMMs of the package nvidia-cutlass-operators for sm_100a, compiled here: right in every order, by conventions only.

Persistent kernels of seven warps that take their tiles by cluster launch control: one CTA, multicast, and pairs.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cutegen.ptx import Program, TensorMap

pytest.importorskip("torch")
SCRIPT = Path(__file__).parent / "dsl" / "compile_operators.py"
M, N, K = 512, 256, 256
KNOWN = (
    "no tcgen05.fence::after_thread_sync",
    "no tcgen05.wait::ld after",
    "the request was refused: there is no first CTA",
    "a release at scope cta to another CTA",
    "an acquire at scope cta of what another CTA",
    "the address of CTA",
)


@dataclass(frozen=True, slots=True)
class Operator:
    """The end of an operator's name, its tile, the CTAs that multiply together, and its cluster along M."""

    name: str
    m: int
    n: int
    group: int
    cluster: int

    @property
    def multicast(self) -> int:
        """How many CTAs, or pairs, load a part of B for each other."""
        return self.cluster // self.group


OPERATORS = (
    Operator("1cta_cluster1x1x1_tile128x128x64_schedulerCLC_tma_store", 128, 128, 1, 1),
    Operator("1cta_cluster1x1x1_tile64x64x64_schedulerCLC_tma_store", 64, 64, 1, 1),
    Operator("1cta_cluster2x1x1_tile128x64x64_schedulerCLC_tma_store", 128, 64, 1, 2),
    Operator("2cta_cluster2x1x1_tile256x128x64_schedulerCLC_tma_store", 256, 128, 2, 2),
    Operator("2cta_cluster2x1x1_tile128x64x64_schedulerCLC_tma_store", 128, 64, 2, 2),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The PTX of all operators."""
    try:
        importlib.metadata.distribution("nvidia-cutlass-operators")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package nvidia-cutlass-operators is not installed")
    path = tmp_path_factory.mktemp("operators")
    names = [operator.name for operator in OPERATORS]
    subprocess.run([sys.executable, str(SCRIPT), str(path), *names], check=True, timeout=300, capture_output=True)
    return path


def tensor_map(array: np.ndarray, box: tuple[int, int]) -> TensorMap:
    return TensorMap(
        array=array,
        extents=(array.shape[1], array.shape[0], 1),
        strides_bytes=(array.strides[0], array.nbytes),
        box=(*box, 1),
        swizzle_bytes=128,
    )


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
@pytest.mark.parametrize("policy", ["in-order", "reversed", "random:1", "random:2", "random:3"])
def test_the_operator_is_right(folder: Path, operator: Operator, policy: str) -> None:
    text = (folder / f"{operator.name}.ptx").read_text()
    name = re.search(r"\.entry (\w+)", text)[1]  # type: ignore[index]
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, (rows, K)).astype(np.float16) for rows in (M, N))
    d = np.full((M, N), np.nan, np.float32)
    rows = operator.m // operator.group
    boxes = ((64, rows), (64, operator.n // operator.group // operator.multicast), (32, min(128, rows)))
    given: list[TensorMap | bytes] = [bytes(32 * operator.group)]
    for array, box, extents in ((a, boxes[0], (M, K)), (b, boxes[1], (N, K)), (d, boxes[2], (M, N))):
        given += [tensor_map(array, box), np.array((*extents, 1), np.int32).tobytes()]
    scheduler = len(re.findall(rf"\.param \.u32 {name}_param_", text))  # not read: the grid says it all
    report = Program.parse(text).launch(
        name,
        grid=(M // rows, N // operator.n),
        block=224,
        cluster=(operator.cluster, 1, 1),
        args=[*given, *[0] * scheduler],
        dynamic_smem_bytes=230_000,
        policy=policy,
    )
    assert (d == a.astype(np.float64) @ b.astype(np.float64).T).all()
    for convention in report.conventions:
        assert convention.message.startswith(KNOWN), convention.message
