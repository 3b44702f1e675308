"""A warp as the watchers see it: its threads, its position, and its violation reports."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.types import Dim3
from cutegen.ptx.watch.violations import ViolationKind


class Group(Protocol):
    """The CTA of an actor."""

    @property
    def place(self) -> Dim3:
        """Its index in the grid."""

    @property
    def rank(self) -> int:
        """Its index in its cluster, x fastest."""

    @property
    def first_thread(self) -> int:
        """The number of its first thread in the cluster."""

    def describe(self, site: int) -> str:
        """`line 12 'st.shared...'` of an instruction."""

    def fault(
        self,
        kind: ViolationKind,
        site: int,
        thread: int,
        message: str,
        address: int | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Reports a violation of one of its threads."""


class Actor(Protocol):
    """A warp."""

    @property
    def index(self) -> int:
        """Its number in the cluster: the warps of its CTAs are numbered one CTA after the other, by rank."""

    @property
    def thread0(self) -> int:
        """The number of its first thread in the cluster."""

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """The lanes that have not exited."""

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """The lanes that are active."""

    @property
    def unwritten(self) -> npt.NDArray[np.bool_] | None:
        """The bytes that each lane has read although nobody wrote them, while that is noted in place of a report."""

    @property
    def cta(self) -> Group:
        """Its CTA."""

    def threads(self) -> npt.NDArray[np.int64]:
        """Numbers of the active threads in the cluster."""
