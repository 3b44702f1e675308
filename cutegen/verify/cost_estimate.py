"""Estimates how long the CPU executor will take, and how many processes to use."""

import os

from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan

# Measured with the shipped specs on one core of an AMD EPYC server, all instructions included: 65 to 110 microseconds
# per mma of a long K, and 30 to 50 milliseconds for a CTA's work before and after the main loop of a tile.
SECONDS_PER_MMA = 1e-4
# A warp executes its 32 multiply-adds as one instruction: some 10 s for 256 x 256 x 256 in family simt.
SECONDS_PER_WARP_FMA = 2e-5
SECONDS_PER_TILE = 0.04
# Processes start, read the PTX and copy the operands in about a second, longer on a busy machine.
SPREAD_FROM_S = 10.0
MOST_JOBS = 4
LONG_S = 120.0
"""A run of at least this many seconds is announced."""
LONGEST_S = 3600.0
"""A longer run is refused unless --yes confirms it."""


def estimate_s(plan: GemmPlan, problem: ProblemShape) -> float:
    """Estimate the seconds that one process needs for a problem, within a factor of two or three.

    >>> from cutegen.plan import plan
    >>> from cutegen.spec import load_spec
    >>> 0.2 < estimate_s(plan(load_spec("sm80_hgemm_tn"), "sm_80"), ProblemShape(256, 256, 256)) < 5
    True
    >>> 5 < estimate_s(plan(load_spec("simt_sgemm_tn"), "sm_80"), ProblemShape(256, 256, 256)) < 20
    True
    """
    tile_m, tile_n, tile_k = plan.cta_tile
    atom_m, atom_n, atom_k = plan.atom.shape_mnk
    atoms = tile_m * tile_n * tile_k // (atom_m * atom_n * atom_k)
    k_tile_s = atoms / WARP * SECONDS_PER_WARP_FMA if plan.by_thread else atoms * SECONDS_PER_MMA
    return plan.launch.tiles(problem) * (SECONDS_PER_TILE + -(-problem.k // tile_k) * k_tile_s)


def worthwhile_jobs(seconds: float) -> int:
    """Return the processes for a run of so many seconds: one for a short run, else one per core, up to MOST_JOBS."""
    return 1 if seconds < SPREAD_FROM_S else min(MOST_JOBS, os.cpu_count() or 1)


def duration(seconds: float) -> str:
    """Format seconds for people.

    >>> duration(119 * 60), duration(7200)
    ('119 minutes', '2.0 hours')
    """
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"
