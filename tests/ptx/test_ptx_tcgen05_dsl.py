"""GEMMs for Blackwell that the CuTe DSL compiled (`dsl/umma_gemm.py`): what a compiler makes of `tcgen05` runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cutegen.errors import CutegenError
from cutegen.ptx import LaunchReport, Program, TensorMap

FOLDER = Path(__file__).parent / "dsl"
POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
VARIANTS = {
    "umma_gemm_1cta": ((128, 128), True, 1),
    "umma_gemm_1cta_mn": ((128, 64), False, 1),
    "umma_gemm_2cta": ((256, 128), True, 2),
}
ROWS, COLUMNS, DEPTH = 256, 128, 256


def launch(name: str, policy: str, text: str | None = None) -> tuple[np.ndarray, np.ndarray, LaunchReport]:
    """(C, the product in float64, report) of a variant, or of another `text` in its place."""
    (m, n), k_major, ctas = VARIANTS[name]
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, (rows, DEPTH)).astype(np.float16) for rows in (ROWS, COLUMNS))
    c = np.full((ROWS, COLUMNS), np.nan, np.float32)
    maps = []
    for matrix, rows in ((a, m // ctas), (b, n // ctas)):
        stored = np.ascontiguousarray(matrix if k_major else matrix.T)
        maps.append(
            TensorMap(
                array=stored,
                extents=stored.shape[::-1],
                strides_bytes=(stored.shape[1] * 2,),
                box=(64, rows) if k_major else (64, 64),
                swizzle_bytes=128,
            )
        )
    shapes = [np.array(shape, np.int32).tobytes() for shape in ((ROWS, DEPTH), (COLUMNS, DEPTH))]
    to_c = c.reshape(-1), np.int32(ROWS), np.int32(COLUMNS), np.int64(COLUMNS)
    report = Program.parse((FOLDER / f"{name}.ptx").read_text() if text is None else text).launch(
        name,
        grid=(ROWS // m * ctas, COLUMNS // n),
        block=128,
        cluster=(ctas, 1, 1) if ctas > 1 else None,
        args=[bytes(32 * ctas), maps[0], shapes[0], maps[1], shapes[1], to_c],
        dynamic_smem_bytes=1024 + 3 * (m + n) // ctas * 128 + 1024,
        policy=policy,
    )
    return c, a.astype(np.float64) @ b.astype(np.float64).T, report


@pytest.mark.parametrize("name", list(VARIANTS))
@pytest.mark.parametrize("policy", POLICIES)
def test_the_dsls_kernel_gives_its_product(name: str, policy: str) -> None:
    c, product, _ = launch(name, policy)
    assert (c == product).all()


NO_FENCE, NO_WAIT = "no tcgen05.fence::after_thread_sync", "no tcgen05.wait::ld after"
OTHER_CTA = ("a release at scope cta to another CTA", "an acquire at scope cta of what another CTA")


@pytest.mark.parametrize("name", list(VARIANTS))
def test_its_conventions_are_those_of_the_dsl(name: str) -> None:
    """The `cute` API writes no `tcgen05` fence, and no `wait::ld`: every register is used before the release."""
    _, _, report = launch(name, "in-order")
    known = (NO_FENCE, NO_WAIT, *(OTHER_CTA if VARIANTS[name][2] == 2 else ()))
    for convention in report.conventions:
        assert convention.message.startswith(known), convention.message
    for each in known:
        assert any(convention.message.startswith(each) for convention in report.conventions), each


WATCHED = re.compile(r"tcgen05\.|mbarrier\.(arrive|try_wait)|cp\.async\.bulk|bar\.sync")
SURVIVORS = ("tcgen05.relinquish_alloc_permit", "mbarrier.arrive.shared::cluster.b64 _, [%r291]")
"""Nobody allocates after the permit is given back; the last release of the sums is waited for by nobody."""


def test_each_instruction_of_the_pairs_kernel_is_needed() -> None:
    """Without it there is a fault, or another product; only those that have no effect in this launch survive."""
    name = "umma_gemm_2cta"
    lines = (FOLDER / f"{name}.ptx").read_text().split("\n")
    dropped = [i for i, line in enumerate(lines) if WATCHED.search(line)]
    assert len(dropped) == 25
    for i in dropped:
        text = "\n".join(lines[:i] + lines[i + 1 :])
        survives = all(_is_right(name, policy, text) for policy in ("in-order", "reversed"))
        assert survives == any(each in lines[i] for each in SURVIVORS), lines[i]


def _is_right(name: str, policy: str, text: str) -> bool:
    try:
        c, product, _ = launch(name, policy, text)
    except CutegenError:
        return False
    return bool((c == product).all())
