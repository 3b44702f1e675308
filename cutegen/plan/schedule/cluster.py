"""Rule for clusters: how many CTAs along M, N and K are scheduled together, and share copies or sums.

CTAs of adjacent tiles along N read the same rows of A, those along M the same rows of B. In a cluster each CTA copies a
part to all of them (multicast), so L2 is read once. Every CTA waits for the slowest, which pays off only if L2 is the
limit; measurements decide.

CTAs along K multiply slices of one tile. Each stores its sums in its own shared memory and adds a share of the tile
from the memory of all: they read each other's sums in parallel, not slice by slice through L2.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.algebra import Extents
from cutegen.errors import SpecError
from cutegen.hardware import DTYPES, MmaAtom
from cutegen.hardware.units import MAX_CLUSTER_CTAS, SECTOR_BYTES
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec
from cutegen.support.words import extents, plural

ALONE = (1, 1, 1)
CLUSTER = "cluster"
NARROWEST_PART = 8
"""Columns of the narrowest wgmma, and so of a share of the sums that a warpgroup holds."""


def choose_cluster(spec: GemmSpec, cta_tile: Extents, atom: MmaAtom, warpgroups: int) -> Choice[Extents]:
    """Return the CTAs along M, N and K; no cluster by default. Raises SpecError for impossible clusters."""
    asked = spec.schedule.cluster
    m, n = (asked or ALONE)[:2]
    along_k = asked[2] if asked is not None and len(asked) == 3 else None
    _check(spec, n, along_k)
    if not _adds(spec, along_k):
        if asked is not None:
            return Choice((m, n, 1), Decision.as_given("schedule.cluster", extents((m, n))))
        why = "each CTA copies its own operands, and waits for no other"
        rejected = (Rejected("2x1", "reads B from L2 once for two tiles, but each CTA waits for the other's copies"),)
        return Choice(ALONE, Decision("schedule.cluster", extents(ALONE[:2]), why, rejected=rejected))
    # Columns of 64 sums that a warpgroup holds, those of several atoms one after the other.
    slices, columns = spec.schedule.slices, cta_tile[0] * cta_tile[1] // (warpgroups * atom.shape_mnk[0])
    if along_k is not None:
        if columns % (along_k * NARROWEST_PART):
            raise _uneven(spec, along_k, columns // NARROWEST_PART)
        chosen = (m, n, along_k)
        return Choice(chosen, Decision("schedule.cluster", extents(chosen), _why(along_k, slices), given=True))
    hinders = dict(_hinders(spec, atom, columns, m * n))
    k = max((k for k, why in hinders.items() if not why), default=None)
    if k is None:
        raise spec.error(
            "schedule.reduction",
            found=f'"cluster" with {plural(slices, "slice")} of K; ' + "; ".join(f"{k}: {hinders[k]}" for k in hinders),
            expected="slices that 2, 4 or 8 CTAs of a cluster divide evenly",
            fix='another schedule.split_k, or reduction = "workspace"',
        )
    others = tuple(Rejected(extents((m, n, other)), why or _FEWER) for other, why in hinders.items() if other != k)
    why = f"the most that divide {plural(slices, 'slice')} evenly; {_why(k, slices)}"
    return Choice((m, n, k), Decision("schedule.cluster", extents((m, n, k)), why, rejected=others))


_FEWER = "more sums would go through the workspace"


def _adds(spec: GemmSpec, along_k: int | None) -> bool:
    """Return whether the CTAs of a cluster add slices."""
    if spec.schedule.slices == 1:
        return False
    return spec.schedule.reduction == CLUSTER or (along_k or 1) > 1


def _why(k: int, slices: int) -> str:
    then = "nothing is left to add" if k == slices else f"{slices // k} such shares are added in the workspace"
    return f"each of {k} CTAs adds 1/{k} of the tile from the shared memory of all, its own slice first; {then}"


def _hinders(spec: GemmSpec, atom: MmaAtom, held: int, ctas: int) -> Iterator[tuple[int, str]]:
    """Return why so many CTAs along K are impossible or do not pay off; nothing if they do."""
    c, columns = spec.problem.c, atom.shape_mnk[1]
    least = NARROWEST_PART if c.major == "m" else max(NARROWEST_PART, SECTOR_BYTES // DTYPES[c.dtype].bytes)
    widths = [width for width in range(least, columns + 1, NARROWEST_PART) if columns % width == 0]
    for k in (2, 4, 8):
        if spec.schedule.slices % k:
            yield k, f"{spec.schedule.split_k} slices are not a multiple of {k}"
        elif k * ctas > MAX_CLUSTER_CTAS:
            yield k, f"{k * ctas} CTAs, of at most {MAX_CLUSTER_CTAS}"
        elif not any(held % (k * width) == 0 for width in widths):
            yield k, f"less than a sector of a row of C in 1/{k} of what a warpgroup multiplies"
        else:
            yield k, ""


def _check(spec: GemmSpec, n: int, along_k: int | None) -> None:
    """Raise SpecError if the slices of K and the cluster do not match."""
    slices, reduction, asked = spec.schedule.slices, spec.schedule.reduction, spec.schedule.cluster
    if asked is None:
        return
    if slices > 1 and n > 1:
        raise spec.error(
            "schedule.cluster",
            found=f"{extents(asked)} with K in {slices} slices",
            expected="1 along N: apart from tiles along M, the CTAs of a cluster are slices of K",
            fix=f"schedule.cluster = [{n}, 1], or leave one of the two keys out",
        )
    if along_k is None:
        return
    if along_k > 1 and slices % along_k:
        raise spec.error(
            "schedule.cluster",
            found=f"{extents(asked)} with K in {plural(slices, 'slice')}",
            expected=f"a divisor of {slices} along K" if slices > 1 else "1 along K: schedule.split_k makes the slices",
            fix=f"schedule.split_k = {-(-slices // along_k) * along_k}",
        )
    if (along_k > 1 and reduction not in (None, CLUSTER)) or (along_k == 1 and slices > 1 and reduction == CLUSTER):
        raise spec.error(
            "schedule.cluster",
            found=f'{extents(asked)} with reduction = "{reduction}"',
            expected='slices along K of a cluster if and only if reduction = "cluster"',
            fix="leave one of the two keys out",
        )


def _uneven(spec: GemmSpec, k: int, pieces: int) -> SpecError:
    return spec.error(
        "schedule.cluster",
        found=f"{k} along K, and {plural(pieces, 'column')} of 64 x {NARROWEST_PART} sums in a warpgroup",
        expected=f"a divisor of {pieces}: every warpgroup adds its share",
        fix="a smaller cluster, or a wider tile.cta",
    )
