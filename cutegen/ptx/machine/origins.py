"""The undefined registers of a warp: which lanes are undefined, and where their values come from (see `undefined`)."""

from collections.abc import Iterable

import numpy as np

from cutegen.ptx.machine.frame import NEVER, Origins
from cutegen.ptx.machine.warp import Mask, Warp
from cutegen.ptx.text.flow import RegisterKey
from cutegen.ptx.text.syntax import WARP_LANES

DEFINED: Origins = np.zeros(WARP_LANES, np.int32)


def origins_of(warp: Warp, key: RegisterKey) -> Origins:
    """The origins of a register's lanes."""
    return warp.undefined.get(key, DEFINED)


def mark(warp: Warp, keys: Iterable[RegisterKey], origins: Origins, lanes: Mask) -> None:
    """The registers have `origins` in `lanes` from now on."""
    undefined, is_any = warp.undefined, bool(origins[lanes].any())
    for key in keys:
        before = undefined.get(key)
        if before is None and not is_any:
            continue
        after = np.where(lanes, origins, DEFINED if before is None else before)
        if after.any():
            undefined[key] = after
        else:
            undefined.pop(key, None)


def define(warp: Warp, keys: Iterable[RegisterKey], lanes: Mask) -> None:
    """The registers have been written in `lanes`."""
    mark(warp, keys, DEFINED, lanes)


def unwritten(warp: Warp, keys: Iterable[RegisterKey], lanes: Mask) -> None:
    """The registers are fresh in `lanes`: nothing has been written to them."""
    mark(warp, keys, np.full(WARP_LANES, NEVER, np.int32), lanes)
