"""Trials of a kernel: the problem that is tried where none is given, and what a run on a GPU does not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.contract import ProblemShape
from cutegen.plan import plan
from cutegen.run.cpu import MULTIPROCESSORS
from cutegen.spec import Tile, load_spec
from cutegen.verify import Comparison
from cutegen.verify.trial import Trial, small_problem
from cutegen.verify.trial_report import trial_table


@pytest.mark.parametrize("ctas_per_multiprocessor", [None, 1, 2, 3])
def test_a_small_problem_has_two_tiles_for_each_persistent_cta(ctas_per_multiprocessor: int | None) -> None:
    planned = plan(load_spec("sm80_hgemm_tn"), "sm_90")
    launch = replace(planned.launch, ctas_per_multiprocessor=ctas_per_multiprocessor)
    problem = small_problem(replace(planned, launch=launch))
    (ctas, _, _), tiles = launch.geometry(problem, multiprocessors=MULTIPROCESSORS).grid, launch.tiles(problem)
    assert (tiles, ctas) == ((4, 4) if ctas_per_multiprocessor is None else (2 * ctas, ctas))
    assert ctas > 1


@pytest.mark.parametrize("swap", [False, True])
def test_a_small_problem_is_four_tiles_of_a_call(swap: bool) -> None:
    """A tile of 128 x 256 of a swapped kernel is one of 256 x 128 of C."""
    spec = load_spec("sm90_hgemm_tn")
    schedule = replace(spec.schedule, swap=swap, consumers="cooperative", cluster=(1, 1))
    planned = plan(replace(spec, tile=Tile((128, 256, 64)), schedule=schedule), "sm_90")
    problem = small_problem(replace(planned, launch=replace(planned.launch, ctas_per_multiprocessor=None)))
    assert (problem.m, problem.n) == ((512, 256) if swap else (256, 512))


def test_a_gpu_counts_nothing() -> None:
    trial = Trial(
        device="cuda",
        problem=ProblemShape(8, 8, 8),
        seed=0,
        comparison=Comparison(1e-4, 1e-3, 0, None),
        aux=None,
        producer=None,
        execution=None,
    )
    table = trial_table(trial)
    assert (table["device"], table["ok"], table["first_wrong"]) == ("cuda", True, None)
    assert {table[key] for key in ("policy", "jobs", "steps", "wavefronts", "sectors", "executed", "as_predicted")} == {
        None
    }
