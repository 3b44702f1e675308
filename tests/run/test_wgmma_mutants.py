"""A few mistakes in the PTX of a kernel of family sm90: the executor or the result shows them."""

from __future__ import annotations

from typing import cast

import pytest

from cutegen import api
from cutegen.build import Cache
from cutegen.run import Kernel
from tests.run.ptx_mutants import sampled
from tests.run.wgmma import CASES
from tests.run.wgmma_mutants import FAULT, SURVIVED, mutants, verdict

pytestmark = [pytest.mark.dsl, pytest.mark.slow]
MAY_SURVIVE = {
    "wgmma.fence dropped": "nobody touches the sums between two groups of the same shape",
    "cp.async.bulk.wait_group dropped": "the last one waits for nothing that is written again",
    "waits for one group too few": "the same",
    "off by one": "a comparison with a bound that no problem meets",
}


def test_mistakes_are_found(kernels: Cache) -> None:
    right = cast("Kernel", api.compile(CASES["pingpong"], "sm_90", cache=kernels))
    text = right.artifact.ptx
    assert verdict(right, text) == SURVIVED
    every = list(mutants(text))
    assert len({mutant.kind for mutant in every}) > 15
    assert all(mutant.planted_in(text) != text for mutant in every)
    for mutant in sampled(every, 20, seed=0):
        found = verdict(right, mutant.planted_in(text))
        assert found != SURVIVED or mutant.kind in MAY_SURVIVE, mutant.before
        assert found == FAULT or not mutant.kind.startswith(("bar.sync", "mbarrier", "wgmma.wait")), mutant.before
