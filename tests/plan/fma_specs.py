"""Specs of the `simt` family at random, many of them refused."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cutegen.spec import Epilogue, G2s, G2sCopy, GemmSpec, Mma, Operand, Problem, Smem, SmemLayout, Tile

GRIDS = [
    "(16,16):(1,16)",
    "(16,16):(16,1)",
    "(8,8):(8,1)",
    "((4,4),(8,2)):((1,32),(4,128))",
    "(1,32):(0,1)",
    "(3,32):(1,3)",
]
COPIES = ["(32,8):(1,32)", "(32,8):(8,1)", "(64,1):(1,0)", "(16,4):(4,1)", "(8,(4,2)):(8,(1,4))"]
BYTES = {"f16": 2, "bf16": 2, "f32": 4}


def maybe(values: Any) -> Any:
    return st.none() | values


def operands(majors: str) -> Any:
    def of(dtype: str) -> Any:
        aligns = [align for align in (2, 4, 8, 16) if align >= BYTES[dtype]]
        return st.builds(Operand, st.just(dtype), st.sampled_from(majors), maybe(st.sampled_from(aligns)))

    return st.sampled_from(sorted(BYTES)).flatmap(of)


EXTENTS = st.tuples(*(st.sampled_from((1, 8, 24, 32, 48, 64, 96, 128)),) * 2, st.sampled_from((1, 2, 4, 8, 12, 16, 32)))
SMEM = maybe(
    st.builds(SmemLayout, pad=st.integers(0, 9))
    | st.builds(SmemLayout, swizzle=st.sampled_from([(0, 0, 0), (1, 2, 3), (2, 3, 3), (1, 3, 3)]))
    | st.builds(SmemLayout, layout=st.sampled_from(["(8,8):(8,1)", "(8,8):(1,8)", "(8,8):(9,1)", "(32,8):(1,33)"]))
)
COPY = maybe(st.builds(G2sCopy, bits=maybe(st.sampled_from((16, 32, 64, 128))), threads=maybe(st.sampled_from(COPIES))))
SPECS = st.builds(
    GemmSpec,
    family=st.just("simt"),
    problem=st.builds(Problem, a=operands("mk"), b=operands("nk"), c=operands("mn")),
    tile=st.builds(Tile, cta=maybe(EXTENTS), stages=maybe(st.integers(1, 3))),
    mma=st.builds(Mma, threads=maybe(st.sampled_from(GRIDS))),
    smem=st.builds(Smem, a=SMEM, b=SMEM),
    g2s=st.builds(G2s, a=COPY, b=COPY),
    epilogue=st.builds(
        Epilogue,
        smem=st.none() | st.just(False) | st.just(SmemLayout(pad=4)),
        ops=maybe(st.sampled_from([("alpha", "beta"), ("bias_n", "relu")])),
    ),
    name=st.just("any"),
)
