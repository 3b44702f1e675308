"""A warp as the watchers see it: who accesses memory, where it stands, and where to complain."""

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
    def number(self) -> int:
        """Its index in the grid as one number, x fastest."""

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
        """Its number in the CTA."""

    @property
    def thread0(self) -> int:
        """Its first thread."""

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """The lanes that have not exited."""

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """The lanes that are active."""

    @property
    def cta(self) -> Group:
        """Its CTA."""

    def threads(self) -> npt.NDArray[np.int64]:
        """Numbers of the active threads in the CTA."""
