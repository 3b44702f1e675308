"""Clocks that an arrival, a release or a copy that lands passes on to those that wait for it, see `ordering`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cutegen.ptx.watch.vector_clock import NO_PAST, Clock, Past, join_pasts, later

NO_TICKS: Clock = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class ReleasedKnowledge:
    """Knowledge that an arrival passes on: each agent's last ordered tick, and its last one before a proxy fence."""

    known: Clock
    fenced: Clock
    strict: Clock
    """Like `known`, but a lane that arrives alone covers only itself, not its warp."""
    far: Past = NO_PAST
    """Ordered accesses of other clusters, and of single threads."""
    seen: Clock = field(default_factory=lambda: NO_TICKS)
    """The last tick of each agent that has definitely happened, visible or not."""
    in_scope: Clock | None = None
    """`known`, without what a release or an acquire passes on that does not include the other side; None: all of it."""

    def within_scopes(self) -> Clock:
        """Knowledge passed on by releases and acquires that include each other."""
        return self.known if self.in_scope is None else self.in_scope


NOTHING = ReleasedKnowledge(NO_TICKS, NO_TICKS, NO_TICKS)


def join(a: ReleasedKnowledge, b: ReleasedKnowledge) -> ReleasedKnowledge:
    """The union of both."""
    strict, seen = later(a.strict, b.strict), later(a.seen, b.seen)
    in_scope = None
    if a.in_scope is not None or b.in_scope is not None:
        in_scope = later(a.within_scopes(), b.within_scopes())
    return ReleasedKnowledge(
        later(a.known, b.known), later(a.fenced, b.fenced), strict, join_pasts(a.far, b.far), seen, in_scope
    )
