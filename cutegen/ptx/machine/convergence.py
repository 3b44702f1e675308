"""Active lanes of a warp: masks as bits, and the faults of instructions that need other lanes to be active.

Source: PTX ISA, `.sync` and `.aligned` of warp and barrier instructions. A lane in a member mask that is not active (it
took another path and has not exited) is a fault: nothing makes it arrive.
"""

import numpy as np

from cutegen.ptx.machine.warp import Mask, Warp
from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.violations import ViolationKind

LANE_BITS = np.uint32(1) << np.arange(WARP_LANES, dtype=np.uint32)


def ballot(mask: Mask) -> int:
    """The bits of a mask of lanes, lane 0 lowest."""
    return int(LANE_BITS[mask].sum())


def check_members(warp: Warp, site: int, members: int, group: Mask | None = None) -> None:
    """Faults if `members` names a lane that is not in `group`, or omits one; None: the group is the active lanes."""
    active, alive = ballot(warp.mask if group is None else group), ballot(warp.alive)
    missing, extra = members & alive & ~active, active & ~members
    if missing:
        missing &= ~ballot(warp.leaving())
    if missing or extra:
        lanes = [lane for lane in range(WARP_LANES) if (missing or extra) >> lane & 1]
        what = "leaves out lanes that execute it"
        if missing:
            gives_another = missing & ballot(warp.mask)
            what = f"names lanes that {'give another mask' if gives_another else 'took another path'}"
        message = f"the member mask {members:#010x} {what}: {lanes}"
        warp.cta.fault(ViolationKind.DIVERGENCE, site, warp.thread0 + lanes[0], message)


def check_whole(warp: Warp, site: int) -> None:
    """Faults if not all 32 lanes of the warp are active here: lanes beyond the block or that have exited count."""
    if not warp.full:
        check_converged(warp, site)
        warp.cta.fault(ViolationKind.DIVERGENCE, site, warp.thread0, "it needs all 32 lanes of the warp")


def check_converged(warp: Warp, site: int) -> None:
    """Faults if not all running lanes of the warp are active here (`.aligned` instructions)."""
    if not warp.full and (warp.mask != warp.alive).any():
        lane = int(np.flatnonzero(warp.alive & ~warp.mask)[0])
        warp.cta.fault(
            ViolationKind.DIVERGENCE, site, warp.thread0 + lane, "not all lanes of the warp execute it together"
        )
