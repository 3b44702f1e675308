"""Predicts the hardware counters of `wgmma` and of bulk tensor copies, which other counters do not see.

`wgmma` reads its operands from shared memory through the load/store pipe, where its wavefronts are counted. Bulk
tensor copies bypass that pipe: counters exist for their instructions and for the sectors between L2 and shared memory.
A multicast copy is counted in each CTA of the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import WARP, WARPGROUP
from cutegen.plan.values.copies import AccessKey

DESCRIPTOR = "descriptor"
"""Entry of `plan.json` for fragment loads if `wgmma` reads shared memory itself."""

WGMMA = "sm__inst_executed_pipe_tensor_op_gmma.sum"
WGMMA_WAVEFRONTS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"
STMATRIX_WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum"
STORE_WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
BULK_LOADS = "smsp__inst_executed_op_tma_ld.sum"
BULK_STORES = "smsp__inst_executed_op_tma_st.sum"
BULK_SECTORS_READ = "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"
BULK_SECTORS_WRITTEN = "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum"
PLAIN_SECTORS_WRITTEN = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"

OF_BULK = (
    WGMMA,
    WGMMA_WAVEFRONTS,
    STMATRIX_WAVEFRONTS,
    BULK_LOADS,
    BULK_STORES,
    BULK_SECTORS_READ,
    BULK_SECTORS_WRITTEN,
)
"""Counters that exist from sm_90 on."""


def by_descriptor(plan: Mapping[str, Any]) -> bool:
    """Return whether `wgmma` itself reads the operands from shared memory."""
    return all(each["atom"] == DESCRIPTOR for each in plan["s2r"].values())


def predict_bulk(plan: Mapping[str, Any], problem: ProblemShape) -> Mapping[str, int]:
    """Predict the counters of one launch on complete tiles from the CTA tile and k-tile of `plan.json`."""
    m, n, k = plan["tile"]
    # Counted at the destination: what one CTA of a cluster requests from L2 reaches every CTA in its row or column.
    along_m, along_n = plan["launch"].get("cluster", (1, 1))
    tiles = problem.batch * problem.m * problem.n // (m * n)
    k_tiles = tiles * (problem.k // k)
    wavefronts = {key: row["predicted"] for key, row in plan["wavefronts"].items()}
    sectors = {key: row["predicted"] for key, row in plan["sectors"].items()}
    by_map, written = any(each["name"] == "c" for each in plan["launch"]["maps"]), plan["instructions"]
    stmatrix = any(opcode.startswith("stmatrix") for opcode in written)
    stores = sum(
        count for opcode, count in written.items() if opcode.startswith("cp.async.bulk") and _to_global(opcode)
    )
    beside = sectors.get("epilogue.aux", 0)
    staged = tiles * wavefronts[AccessKey.EPILOGUE_WRITE]
    return {
        WGMMA: problem.flops // (2 * math.prod(plan["mma"]["shape_mnk"])) * (WARPGROUP // WARP),
        WGMMA_WAVEFRONTS: k_tiles * sum(wavefronts[AccessKey.mma(x)] for x in plan["s2r"]),
        STMATRIX_WAVEFRONTS: staged if stmatrix else 0,
        STORE_WAVEFRONTS: 0 if stmatrix else staged,
        BULK_LOADS: k_tiles * sum(each["boxes"] for each in plan["g2s"].values()),
        BULK_STORES: tiles * stores * math.prod(plan["mma"]["atom_layout"]),
        BULK_SECTORS_READ: k_tiles * (sectors["g2s.a"] * along_n + sectors["g2s.b"] * along_m),
        BULK_SECTORS_WRITTEN: tiles * sectors["epilogue"] if by_map else 0,
        PLAIN_SECTORS_WRITTEN: tiles * (beside if by_map else beside + sectors["epilogue"]),
    }


def _to_global(opcode: str) -> bool:
    """Return whether the bulk tensor copy is a store."""
    return ".global.shared::cta" in opcode
