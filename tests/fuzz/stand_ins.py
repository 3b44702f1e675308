"""Build requests whose kernel is a stand-in, which compiles at once to canned PTX and an ELF image."""

from __future__ import annotations

from functools import lru_cache

import cutegen
from cutegen.build import Artifact, BuildRequest
from cutegen.contract.source import KernelSource
from cutegen.hardware import target
from cutegen.plan import plan
from cutegen.plan.gemm_plan import plan_json
from tests.build.conftest import INSTRUCTIONS, STAND_IN, stand_in_cubin, stand_in_ptx

ENTRY = "sm80_hgemm_tn_0"


@lru_cache
def _plan_json() -> str:
    return plan_json(plan(cutegen.load_spec("sm80_hgemm_tn"), "sm_80"))


def stand_in_request(arch: str = "sm_80", action: str = "pass") -> BuildRequest:
    """A GEMM as far as Python sees it; `action` is a statement of the compiler's process."""
    ptx, cubin = stand_in_ptx(ENTRY), stand_in_cubin(ENTRY)
    text = STAND_IN.format(calls="/dev/null", action=action, ptx=ptx, cubin=cubin)
    return BuildRequest(
        source=KernelSource(text, ENTRY), target=target(arch), plan_json=_plan_json(), instructions=INSTRUCTIONS
    )


def is_right(artifact: Artifact) -> bool:
    """Return whether it is what the stand-in compiles to, with the plan of its request."""
    expected = stand_in_ptx(ENTRY), stand_in_cubin(ENTRY), _plan_json()
    return (artifact.ptx, artifact.cubin, artifact.plan_json) == expected
