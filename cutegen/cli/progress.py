"""Progress bars for what takes long, executing and measuring: on a terminal only, on stderr, gone when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


@contextmanager
def progress() -> Iterator[Callable[[int, int], None] | None]:
    """What to call with (done, total) CTAs; None where nobody watches."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("CTAs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("CTAs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@dataclass(frozen=True, slots=True)
class Rounds:
    """A bar over rounds of measuring."""

    bar: Progress
    task: TaskID

    def begin(self, what: str) -> None:
        """Say what the next rounds measure."""
        self.bar.update(self.task, description=what)

    def advance(self) -> None:
        """One more round is over."""
        self.bar.advance(self.task)


@contextmanager
def rounds(what: str, total: int) -> Iterator[Rounds]:
    """A bar over `total` rounds, the first of which measure `what`."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield Rounds(bar, bar.add_task(what, total=total))
