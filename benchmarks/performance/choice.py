"""The kernels under test: cutegen selects each from the problem's extents, before any measurement."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from cutegen.spec import GemmSpec, Operand, Problem
from cutegen.support.environment import TUNED_DIR

ROW = Operand("f16", "k")
SPEC = GemmSpec(problem=Problem(a=ROW, b=ROW, c=Operand("f16", "n"), accumulator="f32"), name="choice")
"""f16 TN with f32 accumulation; every other key is left open."""


@contextmanager
def untuned() -> Iterator[None]:
    """Ignore the records of `cutegen tune` on this machine, because they come from measurements."""
    with mock.patch.dict(os.environ, {TUNED_DIR: os.devnull}):  # not a folder, therefore no records
        yield
