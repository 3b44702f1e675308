"""An entry made ready to run: its blocks, its register files, where its variables lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.blocks import Block
from cutegen.ptx.machine.frame import Frame
from cutegen.ptx.machine.layout import MemoryLayout
from cutegen.ptx.text.syntax import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """What the executor runs.

    `granule_bytes` and `global_granule_bytes` are the smallest accesses to shared and global memory. CTAs communicate
    where the entry has atomic, volatile or ordered accesses to global memory.
    """

    entry: Entry
    frame: Frame
    blocks: tuple[Block, ...]
    layout: MemoryLayout
    granule_bytes: int
    atomic_sites: npt.NDArray[np.bool_]
    global_granule_bytes: int
    ctas_communicate: bool
