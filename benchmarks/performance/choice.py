"""Which kernel takes part: what cutegen chooses by a problem's extents, before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from cutegen.spec import GemmSpec, Operand, Problem
from cutegen.support.environment import TUNED_DIR

ROW = Operand("f16", "k")
SPEC = GemmSpec(problem=Problem(a=ROW, b=ROW, c=Operand("f16", "n"), accumulator="f32"), name="choice")
"""f16 TN with f32 sums, and nothing else said."""


@contextmanager
def untuned() -> Iterator[None]:
    """Leave out what `cutegen tune` has found on this machine: that was measured."""
    with mock.patch.dict(os.environ, {TUNED_DIR: os.devnull}):  # which is no folder, and so has no records
        yield
