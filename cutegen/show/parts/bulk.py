"""Describes tiles that bulk tensor copies move."""

from __future__ import annotations

from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.smem import SmemTile
from cutegen.support.words import extents


def bulk_facts(copy: BulkTensorCopy, shared: SmemTile, modes: tuple[str, str]) -> list[tuple[str, str]]:
    """Return instruction, boxes and swizzle; `modes` are the contiguous mode and the other."""
    count = "one box" if copy.boxes == 1 else f"{copy.boxes} boxes side by side along {modes[0]}"
    swizzle = f"{copy.swizzle_bytes} bytes, {shared.chosen.name}" if copy.swizzle_bits else "none"
    return [
        ("atom", f"{copy.atom.name}, issued by one thread"),
        ("boxes", f"{count}, {extents(copy.box)} along {modes[0]} and {modes[1]}"),
        ("swizzle", swizzle),
    ]
