"""Requests for kernels: a `GemmSpec`, read from TOML or built in Python, with each value validated on its own.

The plan checks combinations of values, such as an atom and the operands' types.
"""

from __future__ import annotations

from cutegen.contract.launch import GEMM, KINDS, PROBE
from cutegen.spec.expression import (
    Binary,
    Call,
    Expression,
    Name,
    Negation,
    Number,
    names_of,
    parse_expression,
    parts_of,
    takes_pair,
)
from cutegen.spec.families import FAMILIES, Family
from cutegen.spec.load import SpecLike, as_spec, load_spec, shipped_specs, spec_path
from cutegen.spec.model import GemmSpec
from cutegen.spec.parse import parse_spec
from cutegen.spec.parts import (
    MODES,
    Bias,
    Epilogue,
    Extra,
    Factors,
    G2s,
    G2sCopy,
    G2sFactors,
    Grouped,
    Mma,
    Operand,
    Paired,
    Problem,
    Quantized,
    Raster,
    S2r,
    S2rCopy,
    Scale,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
)
from cutegen.spec.schema import Key, known_keys
from cutegen.spec.steps import MATRICES, NARROW_BITS, NARROW_SHARE, OPS, STORE, VECTORS, Step, chain_of, guards_source

__all__ = [
    "FAMILIES",
    "GEMM",
    "KINDS",
    "MATRICES",
    "MODES",
    "NARROW_BITS",
    "NARROW_SHARE",
    "OPS",
    "PROBE",
    "STORE",
    "VECTORS",
    "Bias",
    "Binary",
    "Call",
    "Epilogue",
    "Expression",
    "Extra",
    "Factors",
    "Family",
    "G2s",
    "G2sCopy",
    "G2sFactors",
    "GemmSpec",
    "Grouped",
    "Key",
    "Mma",
    "Name",
    "Negation",
    "Number",
    "Operand",
    "Paired",
    "Problem",
    "Quantized",
    "Raster",
    "S2r",
    "S2rCopy",
    "Scale",
    "Schedule",
    "Smem",
    "SmemLayout",
    "SpecLike",
    "Step",
    "Tile",
    "as_spec",
    "chain_of",
    "guards_source",
    "known_keys",
    "load_spec",
    "names_of",
    "parse_expression",
    "parse_spec",
    "parts_of",
    "shipped_specs",
    "spec_path",
    "takes_pair",
]
