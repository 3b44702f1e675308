"""An entry prepared to run: its blocks, its register files, the addresses of its variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.ptx.machine.blocks import Block
from cutegen.ptx.machine.frame import Frame
from cutegen.ptx.machine.layout import MemoryLayout
from cutegen.ptx.machine.shared import Extent
from cutegen.ptx.text.syntax import Entry
from cutegen.ptx.watch.actor import SiteTable
from cutegen.ptx.watch.semantics import Semantics


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """Program in the form that the executor runs.

    `granule_bytes` and `global_granule_bytes` are the smallest accesses to shared and global memory. CTAs communicate
    if the entry has atomic, volatile or ordered accesses to global memory. `names_global_variables`: it refers to
    variables of the module in global memory, which are not among the arguments. `variables` has the variable in shared
    memory that an instruction may access, if it has an address of one of several. `keeps_seen`: some instruction passes
    on what has happened without making it visible.
    """

    entry: Entry
    frame: Frame
    blocks: tuple[Block, ...]
    layout: MemoryLayout
    granule_bytes: int
    sites: SiteTable
    semantics: Mapping[int, Semantics]
    global_granule_bytes: int
    ctas_communicate: bool
    names_global_variables: bool
    variables: Mapping[int, Extent]
    keeps_seen: bool
