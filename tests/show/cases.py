"""Plans whose pictures are looked at: the shipped specs, and specs that make unusual ones."""

from __future__ import annotations

from functools import lru_cache

from cutegen.plan import GemmPlan, plan
from cutegen.spec import load_spec, parse_spec

OPERANDS = """
family = "sm80"
problem.a = { dtype = "f16", major = "k" }
problem.b = { dtype = "f16", major = "k" }
problem.c = { dtype = "f16", major = "n" }
"""
SPECS = {
    "sm80_hgemm_tn": "",
    "sm80_bf16_nn": "",
    "cute_tutorial_tn": "",
    "sm80_s8_tn": "",
    "sm120_hgemm_tn": "",
    "simt_sgemm_nt": "",
    "simt_sgemm_tn": "",
    "no swizzle": OPERANDS + "tile.cta = [128, 128, 64]\nsmem.a = { pad = 0 }\nsmem.b = { pad = 8 }\n",
    "8 stages": OPERANDS + "tile = { cta = [64, 64, 16], stages = 8 }\n",
    "8 warps": OPERANDS + "tile = { cta = [256, 128, 32] }\nmma.atom_layout = [4, 2, 1]\n",
    "4-byte copies": OPERANDS.replace("major =", "align = 4, major =") + "tile.cta = [64, 64, 32]\n",
    "2-byte copies": OPERANDS.replace("major =", "align = 2, major =") + "tile = { cta = [64, 64, 32], stages = 2 }\n",
    "joined copies": OPERANDS.replace("{ dtype", "{ align = 2, dtype", 1)
    + 'tile.cta = [128, 64, 32]\ng2s.a = { op = "universal", bits = 16, threads = "(128,1):(1,0)" }\n',
    "one stage": OPERANDS + 'tile = { cta = [64, 64, 32], stages = 1 }\ng2s.a = { op = "universal" }\n',
    "wgmma": OPERANDS.replace("sm80", "sm90"),
    "wgmma, M-major A": OPERANDS.replace("sm80", "sm90").replace('major = "k"', 'major = "m"', 1),
    "wgmma, A and B exchanged": OPERANDS.replace("sm80", "sm90") + "schedule.swap = true\n",
    "plain loads": OPERANDS + 'tile.cta = [64, 64, 32]\ns2r.a = { atom = "universal" }\n',
}


PADDED = "padded, MN-major"
_PAIRS = 'epilogue = { expression = "x, y -> silu(x) * y", pairs = { layout = "halves", first = "gate" } }\n'
_TEXTS = SPECS | {
    PADDED: OPERANDS.replace('major = "k"', 'major = "m"', 1).replace('major = "k"', 'major = "n"')
    + "tile = { cta = [128, 64, 32], stages = 3 }\nsmem.a = { pad = 8 }\nsmem.b = { pad = 8 }\n",
    "pairs": OPERANDS + _PAIRS,
    "pairs, wgmma": OPERANDS.replace("sm80", "sm90") + _PAIRS,
}


@lru_cache
def plan_of(name: str) -> GemmPlan:
    """The plan of a spec from here, or of a shipped one."""
    spec = parse_spec(text, name="spec") if (text := _TEXTS.get(name)) else load_spec(name)
    made = plan(spec, spec.needs)
    assert isinstance(made, GemmPlan)
    return made
