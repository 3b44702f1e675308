"""Rule for programmatic dependent launch: whether a launch may begin while what comes before it on the stream runs.

The kernel sets up its barriers meanwhile, and waits (`griddepcontrol.wait`) before it touches memory, so that results
are the same. What comes after gains only where it was launched so too, and what comes before only where it says so
early, which kernels without the key do not.
"""

from __future__ import annotations

from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import SplitPlan
from cutegen.spec import GemmSpec

KEY = "schedule.programmatic"


def choose_programmatic(spec: GemmSpec, split_k: SplitPlan | None) -> tuple[bool, tuple[Decision, ...]]:
    """Return whether the spec asks for it, and the decision where it says anything. Raises SpecError where it
    cannot hold.
    """
    asked = spec.schedule.programmatic
    if asked is None:
        return False, ()
    if asked and split_k is not None and split_k.leaves_sums:
        raise spec.error(
            KEY,
            found=f"true with K in {split_k.slices} slices that go through a workspace",
            expected="no workspace: in a graph such a launch follows a node that takes memory, not a kernel",
            fix='reduction = "cluster", where all slices fit in one, or leave the key out',
        )
    why = "the kernel sets itself up while its predecessor ends, and waits before it touches memory"
    return asked, (Decision(KEY, str(asked).lower(), f"given; {why}" if asked else "given", given=True),)
