"""Shows the progress of a long job on stderr: a bar on a terminal, removed at the end; otherwise lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SILENT_S = 5.0
"""Interval between lines in a pipe or a log file; a shorter job prints none."""

Tell = Callable[[int, int], None]


@dataclass(slots=True)
class Lines:
    """Write one line to stderr every SILENT_S with the total, for log files. `what` is counted."""

    what: str
    clock: Callable[[], float] = time.monotonic
    start_s: float = field(init=False)
    last_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.start_s = self.last_s = self.clock()

    def tell(self, done: int, total: int) -> None:
        """Report that `done` of `total` are done, unless a line was just written."""
        now = self.clock()
        if now - self.last_s >= SILENT_S:
            self.last_s = now
            elapsed = now - self.start_s
            left = f", about {elapsed * (total - done) / done:,.0f} s left" if done else ""
            sys.stderr.write(f"cutegen: {done:,} of {total:,} {self.what}, {elapsed:,.0f} s{left}\n")


@contextmanager
def progress(what: str = "CTAs") -> Iterator[Tell]:
    """Return a callback for (done, total) of `what`."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(what).tell
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@dataclass(slots=True)
class Rounds:
    """Count of finished rounds of `total`, shown as a bar or as lines."""

    bar: Progress
    task: TaskID
    total: int
    lines: Lines | None
    done: int = 0

    def begin(self, what: str) -> None:
        """Announce what the next rounds measure."""
        self.bar.update(self.task, description=what)
        if self.lines is not None:
            self.lines.what = f"rounds, at {what}"

    def advance(self) -> None:
        """Count one more finished round."""
        self.done += 1
        self.bar.advance(self.task)
        if self.lines is not None:
            self.lines.tell(self.done, self.total)


@contextmanager
def rounds(what: str, total: int) -> Iterator[Rounds]:
    """Show `total` rounds, the first of which measure `what`."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        lines = None if console.is_terminal else Lines(f"rounds, at {what}")
        yield Rounds(bar, bar.add_task(what, total=total), total, lines)
