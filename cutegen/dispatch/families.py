"""The family of a kernel that is called, as its artifact says: what only runs kernels has no planner."""

from typing import Any

from cutegen.build import Artifact
from cutegen.dispatch.request import TRIED
from cutegen.hardware.multiplies import has_run
from cutegen.support.typed_json import parse_object


def is_tried(artifact: Artifact) -> bool:
    """Return whether kernels that multiply by the artifact's instruction have run on hardware."""
    return has_run(str(_plan(artifact)["mma"]["ptx"]))


def is_of(artifact: Artifact, family: str) -> bool:
    """Return whether a kernel is of a family, or of any that is `TRIED`."""
    return is_tried(artifact) if family == TRIED else bool(_plan(artifact)["family"] == family)


def sums_of(artifact: Artifact) -> str:
    """Return the element type of a kernel's sums."""
    return str(_plan(artifact)["mma"]["accumulator"])


def _plan(artifact: Artifact) -> dict[str, Any]:
    return parse_object(artifact.plan_json, f"{artifact.path}: plan.json")
