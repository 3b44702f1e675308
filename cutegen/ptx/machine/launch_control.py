"""Clusters of a grid that have not started, and requests to cancel one of them, whose work the requesting one does.

Source: PTX ISA, `clusterlaunchcontrol`. Which cluster a request cancels, and whether it does at all, is open: the
policy decides.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.policy import Schedule
from cutegen.ptx.text.syntax import Dim3

_MARK = 0x434C4300
"""The upper bits of a response's first word; PTX leaves its format open."""


class ClusterQueue:
    """The numbers of the clusters that have not started; `done` is called for each that is cancelled."""

    def __init__(self, numbers: Sequence[int], schedule: Schedule, done: Callable[[], None]) -> None:
        self._pending, self._schedule, self._done, self._requests = deque(numbers), schedule, done, 0

    def __len__(self) -> int:
        """Number of CTAs that have not started."""
        return len(self._pending)

    def start(self) -> int:
        """Take the next one off."""
        return self._pending.popleft()

    def cancel(self) -> int | None:
        """The cluster that a request cancels; None if it is refused."""
        chosen = self._schedule.cancels(self._pending, self._requests)
        self._requests += 1
        if chosen is not None:
            self._pending.remove(chosen)
            self._done()
        return chosen


def response(first_cta: Dim3 | None) -> npt.NDArray[np.void]:
    """The 16 bytes that answer a request: the first CTA of the cancelled cluster, or a refusal."""
    words = [_MARK | (first_cta is not None), *(first_cta or (0, 0, 0))]
    return np.array(words, np.uint32).view("V16")


def read_responses(
    handles: npt.NDArray[np.void],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.uint32]]:
    """(which of `handles` are responses, which say that a cluster was cancelled, the first CTAs as rows)."""
    words = np.ascontiguousarray(handles).view(np.uint32).reshape(-1, 4)
    return words[:, 0] & ~np.uint32(1) == _MARK, words[:, 0] & 1 == 1, words[:, 1:]
