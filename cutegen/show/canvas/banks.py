"""Shared memory by bank: a tile with the bank of every element, and a warp's access phase by phase."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cutegen.hardware import phases, wavefronts
from cutegen.hardware.units import BANK_BYTES, BANK_ROW_BYTES, BANKS, WARP
from cutegen.show.canvas import drawing
from cutegen.support.words import plural

Table = NDArray[np.int64]


def bank_tile(table: Table, element_bytes: int, modes: tuple[str, str], *, cell_elems: int = 1) -> drawing.Picture:
    """Draw element offsets [row, column] as a grid: each cell has the bank of its first byte, and its offset below.

    A cell is `cell_elems` neighbors in a row, which must share a bank. `modes` names rows and columns.
    """
    words = table[:, ::cell_elems]
    banks = words * element_bytes // BANK_BYTES % BANKS
    cells = [
        [drawing.Cell((f"{bank}", f"{offset}"), drawing.bank_color(bank)) for bank, offset in zip(*line, strict=True)]
        for line in zip(banks.tolist(), words.tolist(), strict=True)
    ]
    columns = [f"{column}" for column in range(0, table.shape[1], cell_elems)]
    return drawing.grid(cells, rows=[f"{row}" for row in range(len(table))], columns=columns, corner="\\".join(modes))


def bank_legend() -> drawing.Picture:
    """Explain the color of each bank."""
    return drawing.legend(
        [drawing.Cell((f"{bank}",), drawing.bank_color(bank)) for bank in range(BANKS)], "bank, of 4 bytes"
    )


def phase_charts(byte_offsets: Table, access_bytes: int, places: Sequence[str]) -> drawing.Picture:
    """Draw one warp's access: for each phase, which lane meets which banks. `places` are the addresses of the lanes.

    A dark red cell waits: an earlier lane of its phase needs another word of the same banks.
    """
    names = _bank_names(access_bytes)
    size = drawing.cell_size([(name,) for name in (*names, f"{byte_offsets.max()}")])
    labels = [f"lane {lane}: {place}" for lane, place in enumerate(places)]
    # Equally long, so that the charts are aligned.
    labels = [label.rjust(max(map(len, labels))) for label in labels]
    charts = []
    for phase, lanes in enumerate(phase_lanes(len(byte_offsets), access_bytes)):
        count = plural(int(wavefronts(byte_offsets[lanes], access_bytes)), "wavefront")
        title = f"Phase {phase}, lanes {lanes[0]} to {lanes[-1]}: {count}"
        cells = _phase_cells(byte_offsets[lanes], access_bytes)
        chart = drawing.grid(
            cells, rows=[labels[lane] for lane in lanes], columns=names, corner="lane\\banks", size=size
        )
        charts.append(drawing.captioned([title], chart))
    return drawing.above(*(drawing.beside(*charts[i : i + 2]) for i in range(0, len(charts), 2)), gap=16)


def phase_legend() -> drawing.Picture:
    """Explain how to read `phase_charts`."""
    entries = [drawing.Cell(("byte",), drawing.bank_color(0)), drawing.Cell(("byte",), drawing.CONFLICT)]
    return drawing.legend(entries, "byte offset that a lane addresses; dark red: waits for the bank")


def phase_lanes(lanes: int, access_bytes: int) -> list[range]:
    """Return the lanes of each phase."""
    count = min(lanes, WARP // phases(access_bytes))
    return [range(first, first + count) for first in range(0, lanes, count)]


def _bank_names(access_bytes: int) -> list[str]:
    """Return the banks that an access meets, for each possible start address."""
    width = max(1, access_bytes // BANK_BYTES)
    return [f"{bank}-{bank + width - 1}" if width > 1 else f"{bank}" for bank in range(0, BANKS, width)]


def _phase_cells(byte_offsets: Table, access_bytes: int) -> list[list[drawing.Cell]]:
    """Draw a row per lane, filled at its banks."""
    unit_bytes = max(access_bytes, BANK_BYTES)
    groups = BANK_ROW_BYTES // unit_bytes
    rows = []
    for offset, turn in zip(byte_offsets.tolist(), _turns(byte_offsets // unit_bytes, groups), strict=True):
        group = offset // unit_bytes % groups
        used = drawing.Cell(
            (f"{offset}",), drawing.CONFLICT if turn else drawing.hue(group * len(drawing.HUES) // groups)
        )
        rows.append([used if column == group else drawing.Cell((), drawing.PALE) for column in range(groups)])
    return rows


def _turns(units: Table, groups: int) -> list[int]:
    """Return the wavefront that serves each lane: a lane waits for lower lanes that need the same banks."""
    queues: dict[int, list[int]] = {}
    turns = []
    for unit in units.tolist():
        queue = queues.setdefault(unit % groups, [])
        if unit not in queue:
            queue.append(unit)
        turns.append(queue.index(unit))
    return turns


def word_elems(table: Table, element_bytes: int) -> int:
    """Return the neighbors in a row that share a 4-byte word; 1 unless every word is complete and in order.

    >>> row = np.arange(8).reshape(2, 4)
    >>> word_elems(row, 2), word_elems(row * 2, 2), word_elems(row + 1, 2)
    (2, 1, 1)
    """
    elems = max(1, BANK_BYTES // element_bytes)
    if table.shape[1] % elems:
        return 1
    runs = table.reshape(-1, elems)
    together = (runs == runs[:, :1] + np.arange(elems)).all() and (runs[:, 0] % elems == 0).all()
    return elems if together else 1
