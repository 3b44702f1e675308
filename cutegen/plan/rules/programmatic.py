"""Rule for programmatic dependent launch: a launch may begin while its predecessor on the stream runs.

The kernel sets up its barriers meanwhile, and waits (`griddepcontrol.wait`) before it accesses memory, so results are
the same. A successor gains only if it is launched this way too, and a predecessor only if it triggers early, which
kernels without the key do not.
"""

from __future__ import annotations

from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec

KEY = "schedule.programmatic"


def choose_programmatic(spec: GemmSpec, split_k: SplitK | None) -> tuple[bool, tuple[Decision, ...]]:
    """Return whether the spec requests it, and the decision if the key is given. Raises SpecError if impossible."""
    asked = spec.schedule.programmatic
    if asked is None:
        return False, ()
    if asked and split_k is not None and split_k.leaves_sums:
        raise spec.error(
            KEY,
            found=f"true with K in {split_k.slices} slices that use a workspace",
            expected="no workspace: in a graph such a launch follows a node that allocates memory, not a kernel",
            fix='reduction = "cluster", if all slices fit in one, or leave the key out',
        )
    why = "the kernel runs its prologue while its predecessor ends, and waits before it accesses memory"
    return asked, (Decision.as_given(KEY, str(asked).lower(), why if asked else ""),)
