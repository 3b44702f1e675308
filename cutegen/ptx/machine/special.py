"""Special registers: their widths and their values.

Source: PTX ISA, "Special Registers". Time is not modeled: a timer advances by a constant whenever it is read, so that a
loop that waits for it ends. Each warp has its own `%clock`; `%globaltimer` is the launch's.

`%envreg1` and `%envreg2` are the high and the low half of the address of the grid's workspace, as the driver passes it
to a cooperative launch; `cooperative_groups::this_grid().sync()` counts arrivals there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.grid import Shape
from cutegen.ptx.text.syntax import WARP_LANES, Dim3

_DIM3 = ("%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid")
RESERVED_SMEM_BYTES = 1024
"""Shared memory before a CTA's own, which the system keeps to itself from sm_80 on."""
_RESERVED = {
    **dict.fromkeys(("begin", "0", "1"), 0),
    **dict.fromkeys(("end", "cap"), RESERVED_SMEM_BYTES),
}
"""The registers `%reserved_smem_offset_...`; debug builds read them, whether or not they use that memory."""
_SCALARS = (
    *("%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%dynamic_smem_size", "%total_smem_size"),
    *("%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt"),
    *("%cluster_ctarank", "%cluster_nctarank"),
)

CLOCKS, GLOBAL_TIMERS = ("%clock", "%clock64"), ("%globaltimer", "%globaltimer_lo")
TIMERS = (*CLOCKS, *GLOBAL_TIMERS)
"""Registers that advance when they are read, in clock cycles and in nanoseconds."""
TIME_PER_READ = 1024
"""Ticks that a timer advances by, which keeps loops that wait for it short."""
WORKSPACE_REGISTERS = ("%envreg1", "%envreg2")
WORKSPACE_ADDRESS, WORKSPACE_BYTES = 0x12C0_0000_0000, 64
"""The grid's workspace in global memory, between the arguments and the module's variables."""

SPECIAL_BITS: dict[str, int] = {
    **{f"{name}.{axis}": 32 for name in _DIM3 for axis in "xyz"},
    **dict.fromkeys(_SCALARS, 32),
    **{f"%reserved_smem_offset_{name}": 32 for name in _RESERVED},
    "%clock": 32,
    "%clock64": 64,
    "%globaltimer": 64,
    "%globaltimer_lo": 32,
    **{f"%envreg{number}": 32 for number in range(32)},
    "%gridid": 64,
    "%is_explicit_cluster": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Position of a warp: its CTA in the grid and the launch's shape; `warp` is its number in the CTA."""

    shape: Shape
    cta: Dim3
    warp: int
    warps: int
    total_smem_bytes: int


def special_value(name: str, place: Place) -> npt.NDArray[np.int64] | int:
    """The 32 lanes (or the one value) of a special register for the warp at `place`."""
    lane = np.arange(32)
    stem, _, axis = name.partition(".")
    if stem == "%tid":
        return thread_coordinates(place.shape.block, place.warp * WARP_LANES + lane)["xyz".index(axis)]
    if axis:
        return _dimensions(stem, place)["xyz".index(axis)]
    values: dict[str, npt.NDArray[np.int64] | int] = {
        "%laneid": lane,
        "%warpid": place.warp,
        "%nwarpid": place.warps,
        "%nsmid": 1,
        "%dynamic_smem_size": place.shape.dynamic_smem_bytes,
        "%total_smem_size": place.total_smem_bytes,
        "%lanemask_eq": 1 << lane,
        "%lanemask_lt": (1 << lane) - 1,
        "%lanemask_le": (2 << lane) - 1,
        "%lanemask_ge": 0xFFFFFFFF ^ ((1 << lane) - 1),
        "%lanemask_gt": 0xFFFFFFFF ^ ((2 << lane) - 1),
        "%cluster_ctarank": place.shape.grid.rank(place.cta),
        "%cluster_nctarank": place.shape.grid.cluster_size,
        "%is_explicit_cluster": int(place.shape.explicit_cluster),
        **{f"%reserved_smem_offset_{name}": offset for name, offset in _RESERVED.items()},
        "%envreg1": WORKSPACE_ADDRESS >> 32,
        "%envreg2": WORKSPACE_ADDRESS & 0xFFFFFFFF,
    }
    return values.get(name, 0)


def _dimensions(name: str, place: Place) -> Sequence[int]:
    """The three numbers of a special register that has x, y and z."""
    grid, cta = place.shape.grid, place.cta
    return {
        "%ntid": place.shape.block,
        "%ctaid": cta,
        "%nctaid": grid.ctas,
        "%clusterid": [at // each for at, each in zip(cta, grid.cluster, strict=True)],
        "%nclusterid": grid.clusters,
        "%cluster_ctaid": [at % each for at, each in zip(cta, grid.cluster, strict=True)],
        "%cluster_nctaid": grid.cluster,
    }[name]


def thread_coordinates(
    block: Dim3, linear: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(x, y, z) of threads numbered with x fastest."""
    x, y, _ = block
    return linear % x, linear // x % y, linear // (x * y)
