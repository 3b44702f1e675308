"""A progress bar for long runs of the CPU executor: on a terminal only, on stderr, gone when the run is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


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
