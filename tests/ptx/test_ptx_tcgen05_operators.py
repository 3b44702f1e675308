"""GEMMs of the package nvidia-cutlass-operators for sm_100a, compiled here: right in every order, by conventions only.

Persistent kernels of seven warps that take their tiles by cluster launch control: one CTA, multicast, and pairs.
"""

from __future__ import annotations

import importlib.metadata
import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tcgen05_operands import codes_of, values_of

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
    "tcgen05.cp overwrites words of the tcgen05.cp",
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
SCALED = (
    Operator("2cta_cluster2x1x1_tile256x128x128_tma_store", 256, 128, 2, 2),
    Operator("2cta_cluster2x1x1_tile128x64x128_tma_store", 128, 64, 1, 2),  # its name says 2cta; each CTA multiplies
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The PTX of all operators."""
    try:
        importlib.metadata.distribution("nvidia-cutlass-operators")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package nvidia-cutlass-operators is not installed")
    path = tmp_path_factory.mktemp("operators")
    names = [operator.name for operator in (*OPERATORS, *SCALED)]
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


@pytest.mark.slow
@pytest.mark.parametrize("operator", SCALED, ids=lambda operator: operator.name)
@pytest.mark.parametrize("policy", ["in-order", "reversed", "random:1", "random:2", "random:3"])
def test_the_operator_with_block_factors_is_right(folder: Path, operator: Operator, policy: str) -> None:
    """Values of e4m3 and factors of 32 of them; three clusters take the tiles in turn."""
    text = (folder / f"{operator.name}.ptx").read_text()
    name = re.search(r"\.entry (\w+)", text)[1]  # type: ignore[index]
    rng = np.random.default_rng(1)
    values = [values_of("e4m3", (rows, K), rng) for rows in (M, N)]
    codes = [rng.choice([126, 127, 128], (rows, K // 32)).astype(np.uint8) for rows in (M, N)]
    scaled = [v * np.repeat(2.0 ** (c - 127.0), 32, axis=1) for v, c in zip(values, codes, strict=True)]
    d = np.full((M, N), np.nan, np.float32)
    rows = operator.m // operator.group
    a, b = (codes_of("e4m3", each) for each in values)
    tiles = np.uint32(M // rows), np.uint32(N // operator.n), np.uint32(1)
    schedule = (*tiles, divisor(M // (rows * operator.cluster)), divisor(N // operator.n))
    shape = bytes(12)
    report = Program.parse(text).launch(
        name,
        grid=(operator.cluster, 1, 3),
        block=192,
        cluster=(operator.cluster, 1, 1),
        args=[
            *(bytes(12), bytes(12)),
            *(tensor_map(a, (128, rows)), np.array((M, K, 1), np.int32).tobytes()),
            *(tensor_map(b, (128, operator.n // 2)), np.array((N, K, 1), np.int32).tobytes()),
            *(factor_map(codes[0], 256), shape, factor_map(codes[1], 128), shape),
            *(tensor_map(d, (32, rows)), np.array((M, N, 1), np.int32).tobytes()),
            *(*schedule, *schedule),
        ],
        dynamic_smem_bytes=231_000,
        policy=policy,
    )
    assert (d == scaled[0] @ scaled[1].T).all()
    for convention in report.conventions:
        assert convention.message.startswith(KNOWN), convention.message


def factor_map(codes: np.ndarray, box: int) -> TensorMap:
    """Atoms of 128 rows and 4 factors, those along K first; `box` units of 2 bytes are loaded at once."""
    rows, factors = np.indices(codes.shape)
    atoms = np.zeros((len(codes) // 128, codes.shape[1] // 4, 512), np.uint8)
    atoms[rows // 128, factors // 4, rows % 32 * 16 + rows % 128 // 32 * 4 + factors % 4] = codes
    down, across = atoms.shape[:2]
    return TensorMap(
        array=atoms.reshape(-1).view(np.uint16),
        extents=(256, down, across, 1),
        strides_bytes=(across * 512, 512, atoms.nbytes),
        box=(box, 1, 1, 1),
        swizzle_bytes=0,
    )


def divisor(number: int) -> bytes:
    """The DSL's FastDivmod (Granlund and Montgomery, "Division by invariant integers using multiplication")."""
    bits = (number - 1).bit_length()
    return struct.pack("<IIBBxx", number, ((1 << bits) - number << 32) // number + 1, min(bits, 1), max(bits - 1, 0))
