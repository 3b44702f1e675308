"""Rules for the tile that warpgroups multiply, and the number that share it.

One instruction multiplies 64 rows by all columns that a warpgroup has of the tile, since each instruction reads A from
shared memory once: more columns need less shared memory bandwidth.
"""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.hardware import Target, dtype
from cutegen.hardware.units import LINE_BYTES, WGMMA_ROWS
from cutegen.plan.rules.consumers import pingpong
from cutegen.plan.rules.promotion import promotes
from cutegen.plan.rules.wgmma_atom import other_family
from cutegen.plan.rules.wgmma_sums import check_room, lacks_room, sums_of
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec
from cutegen.support.words import either, extents, plural

WARPGROUPS = (1, 2, 3)
"""Consumer warpgroups: four would leave each thread fewer registers than their tile needs."""


def choose_cta_tile(spec: GemmSpec) -> Choice[Extents]:
    """The extents along M, N and K that one CTA computes at a time."""
    if spec.tile.cta is not None:
        return Choice(spec.tile.cta, Decision.as_given("tile.cta", extents(spec.tile.cta)))
    element = dtype(spec.problem.a.dtype)
    m, n, k = chosen = (*_default_rows(spec), LINE_BYTES // element.bytes)
    why = (
        f"{m * n // (m + n)} multiply-adds per element fetched; {_shares(spec, m)}; {k} "
        f"elements along K are one {LINE_BYTES}-byte line"
    )
    return Choice(chosen, Decision("tile.cta", extents(chosen), why))


def _default_rows(spec: GemmSpec) -> tuple[int, int]:
    """Return rows and columns: as many as leave each thread registers for its sums."""
    if pingpong(spec):
        return (WGMMA_ROWS, 128) if promotes(spec) else (128, 128)
    return (128, 128) if promotes(spec) else (128, 256)


def _shares(spec: GemmSpec, m: int) -> str:
    return "each warpgroup has a whole tile" if pingpong(spec) else f"two warpgroups have {m // 2} rows each"


def choose_warpgroups(spec: GemmSpec, cta_tile: Extents, target: Target) -> Choice[Extents]:
    """Choose the warpgroups along M, N and K: two if the tile's rows allow, so that one works while another waits.

    They lie along M, so that each has all columns, and A is read from shared memory once.
    """
    if spec.mma.atom_layout is not None:
        given = _given_warpgroups(spec, cta_tile)
        check_room(spec, given, cta_tile, target)
        return Choice(given, Decision.as_given("mma.atom_layout", extents(given)))
    m = cta_tile[0]
    numbers = (1,) if pingpong(spec) else WARPGROUPS
    options = [(groups, 1, 1) for groups in numbers if m % (WGMMA_ROWS * groups) == 0]
    if not options:
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected=f"M a multiple of {WGMMA_ROWS}, the rows of a wgmma",
            fix=f"M = {max(1, round(m / WGMMA_ROWS)) * WGMMA_ROWS} is the nearest; {other_family()} on 16 rows",
        )
    chosen = min(options, key=lambda option: _rank(spec, option, cta_tile, target))
    check_room(spec, chosen, cta_tile, target)
    rejected = tuple(
        Rejected(extents(option), _why_not(spec, option, chosen, cta_tile, target))
        for option in options
        if option != chosen
    )
    who = (
        "one warpgroup for the whole tile"
        if chosen[0] == 1
        else f"warpgroups, each with {m // chosen[0]} rows and all {cta_tile[1]} columns"
    )
    why = f"{who}: {sums_of(spec, chosen, cta_tile)} registers per thread for sums"
    return Choice(chosen, Decision("mma.atom_layout", extents(chosen), why, rejected=rejected))


def _rank(spec: GemmSpec, option: Extents, cta_tile: Extents, target: Target) -> tuple[bool, int]:
    """Smaller is better: sums fit, then two warpgroups, then the fewest."""
    return lacks_room(spec, option, cta_tile, target) is not None, abs(option[0] - 2)


def _why_not(spec: GemmSpec, option: Extents, chosen: Extents, cta_tile: Extents, target: Target) -> str:
    if (lack := lacks_room(spec, option, cta_tile, target)) is not None:
        return lack.why
    if option[0] < chosen[0]:
        return "nothing would be multiplied while the warpgroup stores its part of C"
    return f"{option[0]} warpgroups, but {chosen[0]} suffice; fewer registers each"


def _given_warpgroups(spec: GemmSpec, cta_tile: Extents) -> Extents:
    """Return the layout that the spec requests. Raises SpecError if it does not divide the tile."""
    layout = spec.mma.atom_layout
    assert layout is not None
    m, n, k = layout
    if pingpong(spec) and layout != (1, 1, 1):
        raise spec.error(
            "mma.atom_layout",
            found=f"{extents(layout)} warpgroups, with ping-pong consumers",
            expected="1x1x1: each of the two has a tile of its own",
            fix='leave mma.atom_layout out, or schedule.consumers = "cooperative"',
        )
    if k != 1 or m * n not in WARPGROUPS:
        raise spec.error(
            "mma.atom_layout",
            found=f"{extents(layout)} warpgroups",
            expected=f"{either([str(groups) for groups in WARPGROUPS])} warpgroups, 1 along K: in family "
            f"{spec.family} the layout counts warpgroups of 128 threads, not warps",
            fix="use 2x1x1",
        )
    for mode, unit, found in ((0, WGMMA_ROWS * m, m), (1, n, n)):
        if cta_tile[mode] % unit:
            letter = "MN"[mode]
            raise spec.error(
                "mma.atom_layout",
                found=f"{extents(layout)}: {plural(found, 'warpgroup')} along {letter} of {extents(cta_tile)}",
                expected=f"a divisor of the CTA tile's {letter} = {cta_tile[mode]}, in units of {unit // found}",
                fix=f"{letter} = {max(1, round(cta_tile[mode] / unit)) * unit} is the nearest tile",
            )
    return layout
