"""The lines of a kernel's docstring on its roles: the pipelines between them, and the order of its first k-tiles."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from cutegen.plan.kernel.pipeline import Arrival, Barrier, By, Role, Sync
from cutegen.plan.kernel.program import FETCHES, Action, KernelLoop
from cutegen.plan.kernel.timeline import Slot, slots
from cutegen.render.python_text import LINE_WIDTH
from cutegen.support.words import aligned, plural

INDENT = 4
SHOWN_K_TILES = 8
"""K-tiles of a timeline."""
_BY = {By.THREAD: "thread", By.WARP: "warp", By.COPY: "copy", By.THREAD_COPIES: "lane's copies", By.MMA: "mma"}
_STEPS = {
    "copy": FETCHES,
    "store": frozenset({Action.STORE}),
    "multiply": frozenset({Action.MULTIPLY}),
    "release": frozenset({Action.RELEASE}),
}
"""The rows of a timeline, and the steps whose k-tiles they show."""


def about(loop: KernelLoop) -> list[str]:
    """Return the lines of the docstring: roles with their warps, pipelines with their counts, and a timeline.

    A pipeline's barrier ends a phase after as many arrivals as it counts; its first waits need none of its credits.
    """
    lines = (*_roles(loop), "", *_pipelines(loop), *_timeline(loop))
    return [f"{' ' * INDENT}{line}".rstrip() for line in lines]


def _roles(loop: KernelLoop) -> Iterator[str]:
    words = ", ".join(f"{role.name} ({_warps(role)})" for role in loop.roles)
    yield f"Roles: {words}."


def _warps(role: Role) -> str:
    if role.groups == 1:
        return plural(role.warps, "warp")
    each = f"{role.groups} groups of {plural(role.warps // role.groups, 'warp')}"
    return each if role.turns is None else f"{each}, in turn"


def _pipelines(loop: KernelLoop) -> Iterator[str]:
    """Yield the table of pipelines, if there are any."""
    if not loop.pipelines:
        return
    issued = {loop.instruction(step) for each in loop.ranges for step in each.steps}
    rows = []
    for x in loop.pipelines:
        place = (x.name, _names(x.producers), _names(x.consumers), f"{x.stages} x {x.holds}")
        rows.append((*place, "full", _arrivals(x.full, x.payload_bytes, issued)))
        if x.empty is not None:
            rows.append(("", "", "", "", "empty", _arrivals(x.empty, 0, issued)))
    head = ("pipeline", "from", "to", "stages", "barrier", "arrivals")
    yield from aligned(rows, header=head, indent=0, width=LINE_WIDTH - INDENT)
    yield ""


def _names(roles: Iterable[str]) -> str:
    return ", ".join(roles)


def _arrivals(barrier: Barrier, payload_bytes: int, issued: Collection[str | None]) -> str:
    """Return the number of arrivals and who arrives; for groups of copies, which have no barrier, the instruction.

    Plain copies are in no group: `bar.sync` is all that orders them.
    """
    if barrier.sync is Sync.STORE_GROUPS:
        return barrier.sync.value
    if barrier.sync is Sync.COPY_GROUPS:
        return barrier.sync.value if barrier.sync.value in issued else Sync.NAMED.value
    who = f"{barrier.count} ({' + '.join(_who(x) for x in barrier.arrivals)})"
    return f"{who}, {payload_bytes} bytes" if payload_bytes and barrier.sync is Sync.MBARRIER else who


def _who(arrival: Arrival) -> str:
    each = "" if arrival.by is By.COPY else "each "
    words = f"{each}{_BY[arrival.by]} of {arrival.role}"
    return f"{words} in {arrival.ctas} CTAs" if arrival.ctas > 1 else words


def _timeline(loop: KernelLoop) -> Iterator[str]:
    """Yield the first k-tiles in program order: a column before the loop, then one for each k-tile multiplied.

    A role that waits for free stages is shown as soon as it may go on.
    """
    found = slots(loop, SHOWN_K_TILES)
    places: list[int | None] = list(dict.fromkeys(slot.k_tile for slot in found))
    head = ("k-tile", *("before" if place is None else str(place) for place in places))
    rows = [(name, *(_k_tiles(found, place, actions) for place in places)) for name, actions in _STEPS.items()]
    yield from aligned([row for row in rows if any(row[1:])], header=head, indent=0, width=LINE_WIDTH - INDENT)


def _k_tiles(found: Sequence[Slot], place: int | None, actions: frozenset[Action]) -> str:
    """Return the k-tiles that a column's steps touch, consecutive ones as a range."""
    steps = [step for slot in found if slot.k_tile == place for step in slot.steps if step.action in actions]
    touched = sorted({step.k_tile for step in steps})
    if len(touched) > 2 and touched[-1] - touched[0] == len(touched) - 1:
        return f"{touched[0]}-{touched[-1]}"
    return " ".join(map(str, touched))
