"""The algebra stays light: what it imports, and how long one thread's partition takes."""

from __future__ import annotations

import subprocess
import sys
import time

from cutegen.algebra import TiledCopy, TiledMma, parse_layout, tile_to_shape
from cutegen.hardware import MMA_ATOMS, ldmatrix_atom, ldmatrix_trace, wavefronts

HEAVY = ("cutlass", "torch", "cuda", "matplotlib", "jinja2", "rich", "typer")


def test_imports_nothing_heavy() -> None:
    code = f"import sys, cutegen.algebra, cutegen.hardware; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def best_ms(action: object) -> float:
    """The best of five runs: the machine's noise only ever adds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        action()  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def test_one_threads_view_is_immediate() -> None:
    mma = TiledMma(MMA_ATOMS["SM80_16x8x16_F32F16F16F32_TN"], (2, 2, 1), (32, 32, 16))
    atom = ldmatrix_atom(4, transpose=False)
    copy = TiledCopy.for_mma(atom, mma, "A", 16)
    smem = tile_to_shape(parse_layout("Sw<3,3,3> o (8,64):(64,1)"), (128, 64, 3))
    stage = tile_to_shape(parse_layout("Sw<3,3,3> o (8,64):(64,1)"), (128, 64))
    fragment = mma.fragment("A", stage, 0)
    assert best_ms(lambda: mma.partition("A", smem, 5)) < 5
    assert best_ms(lambda: copy.partition_s(smem, 5)) < 5
    assert best_ms(lambda: copy.retile(fragment)) < 5
    # Forty such rankings are one `cutegen plan`.
    assert best_ms(lambda: wavefronts(ldmatrix_trace(mma, "A", stage, atom).row_offsets_bytes, 16)) < 5
