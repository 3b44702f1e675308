"""The parts of a plan that `show` displays, one file each: `view` is text and JSON, `picture` is drawn."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.show.canvas import Picture
from cutegen.show.parts import epilogue, g2s, mma, overview, partitions, pipeline, s2r, smem, tmem
from cutegen.show.view import View


class Part(StrEnum):
    """A part of a plan that can be shown."""

    MMA = "mma"
    SMEM = "smem"
    G2S = "g2s"
    S2R = "s2r"
    TMEM = "tmem"
    EPILOGUE = "epilogue"
    PIPELINE = "pipeline"
    PARTITIONS = "partitions"


OF_A_PROBE = (Part.MMA, Part.SMEM, Part.S2R, Part.PARTITIONS)
"""The parts of a probe: those of its GEMM that concern fragment loads."""


class PartView(Protocol):
    """The text and the JSON of a part; with `everything` its tables are complete."""

    def __call__(self, plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View: ...


VIEWS: Mapping[Part | None, PartView] = MappingProxyType(
    {
        None: overview.view,
        Part.MMA: mma.view,
        Part.SMEM: smem.view,
        Part.G2S: g2s.view,
        Part.S2R: s2r.view,
        Part.TMEM: tmem.view,
        Part.EPILOGUE: epilogue.view,
        Part.PIPELINE: pipeline.view,
        Part.PARTITIONS: partitions.view,
    }
)
PICTURES: Mapping[Part, Callable[[GemmPlan, int], Picture]] = MappingProxyType(
    {
        Part.MMA: mma.picture,
        Part.SMEM: smem.picture,
        Part.G2S: g2s.picture,
        Part.S2R: s2r.picture,
        Part.TMEM: tmem.picture,
        Part.EPILOGUE: epilogue.picture,
        Part.PIPELINE: pipeline.picture,
    }
)
PAGES: Mapping[str, Callable[[GemmPlan], dict[str, Any] | None]] = MappingProxyType(
    {
        "overview": overview.page,
        Part.MMA: mma.page,
        Part.SMEM: smem.page,
        Part.G2S: g2s.page,
        Part.S2R: s2r.page,
        Part.TMEM: tmem.page,
        Part.EPILOGUE: epilogue.page,
        Part.PIPELINE: pipeline.page,
    }
)
"""Function for each part that supplies its data to the interactive page."""

SWAPPED = "A and B swapped: A here is the call's B"


def view_of(part: Part | None, plan: GemmPlan, thread: int, problem: ProblemShape, *, everything: bool = False) -> View:
    """Return the text and the JSON of a part; those of a kernel that swaps A and B begin with whose names they have."""
    found = VIEWS[part](plan, thread, problem, everything=everything)
    return View(([SWAPPED], *found.blocks), {"swapped": True, **found.table}) if plan.swapped else found


__all__ = ["OF_A_PROBE", "PAGES", "PICTURES", "VIEWS", "Part", "view_of"]
