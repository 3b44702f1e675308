"""What is asked: a `GemmSpec`, read from TOML or built in Python, every value of it judged on its own.

What several values must agree on, such as an atom and the operands' types, is for the plan to say.
"""

from __future__ import annotations

from cutegen.spec.families import FAMILIES, Family
from cutegen.spec.load import load_spec, shipped_specs, spec_path
from cutegen.spec.model import (
    MODES,
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    Operand,
    Problem,
    Raster,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
)
from cutegen.spec.parse import parse_spec
from cutegen.spec.schema import Key, known_keys

__all__ = [
    "FAMILIES",
    "MODES",
    "Epilogue",
    "Family",
    "G2s",
    "G2sCopy",
    "GemmSpec",
    "Key",
    "Mma",
    "Operand",
    "Problem",
    "Raster",
    "S2r",
    "S2rCopy",
    "Schedule",
    "Smem",
    "SmemLayout",
    "Tile",
    "known_keys",
    "load_spec",
    "parse_spec",
    "shipped_specs",
    "spec_path",
]
