"""Records launches of QuACK's GEMM for sm_100: `python record_quack.py FOLDER`, one file per variant.

Needs the packages quack-kernels and torch, a C compiler and no GPU. Nothing that it writes is kept.
"""

import os
import sys
from pathlib import Path

from recording import Recording, on_a_gpu, without_triton

PLAIN = {"element": "bf16", "dtype": "BFloat16"}
SCALED = {"element": "e4m3", "dtype": "Float8E4M3FN", "factor": "ue8m0", "factor_dtype": "Float8E8M0FNU", "size": 32}
PACKED = {"element": "e2m1x2", "dtype": "Float4E2M1FN", "factor": "e4m3", "factor_dtype": "Float8E4M3FN", "size": 16}
VARIANTS = {
    "clc": (PLAIN, (128, 128), (1, 1, 1), True),
    "static": (PLAIN, (128, 64), (1, 1, 1), False),
    "pair": (PLAIN, (256, 128), (2, 1, 1), True),
    "pair_of_128": (PLAIN, (128, 128), (2, 1, 1), True),
    "scaled": (SCALED, (128, 128), (1, 1, 1), True),
    "scaled_pair": (SCALED, (256, 128), (2, 1, 1), False),
    "packed": (PACKED, (128, 128), (1, 1, 1), True),
}
"""By name: the operands, the tile, the cluster, and whether tiles are taken by cluster launch control."""
M, N, K = 512, 192, 256


def main() -> None:
    """Compile and record each variant."""
    recording = Recording(Path(sys.argv[1]))
    os.environ["QUACK_ARCH"] = "sm_100"
    with without_triton():
        from quack.gemm import _compile_gemm
        from quack.gemm_default_epi import GemmDefaultEpiMixin
        from quack.gemm_tvm_ffi_utils import make_scheduler_args, make_varlen_args
    import cutlass

    on_a_gpu(cutlass)
    epilogue = GemmDefaultEpiMixin.EpilogueArguments(
        alpha=None, beta=None, mRowVecBroadcast=None, mColVecBroadcast=None, add_to_output=None, rounding_mode=None,
        sr_seed=None,
    )  # fmt: skip
    for name, (operands, tile, cluster, is_dynamic) in VARIANTS.items():
        dtype, factors = getattr(cutlass, operands["dtype"]), "factor" in operands
        compiled = _compile_gemm.__wrapped__(
            dtype, dtype, cutlass.BFloat16, None, "k", "k", "n", None,
            tile_shape_mn=tile, cluster_shape_mnk=cluster, pingpong=False, persistent=True,
            is_dynamic_persistent=is_dynamic, rowvec_dtype=None, colvec_dtype=None, colvec_ndim=0, alpha_mode=0,
            beta_mode=0, add_to_output=False, concat_layout=(), varlen_m=False, varlen_k=False, gather_A=False,
            use_tma_gather=False, has_batch_idx_permute=False, device_capacity=(10, 0), rounding_mode=0, sr_seed_mode=0,
            num_warps=None,
            sf_dtype=getattr(cutlass, operands["factor_dtype"]) if factors else None,
            sf_vec_size=operands["size"] if factors else None,
        )  # fmt: skip
        depth = K // 2 if operands is PACKED else K
        a, b = (recording.tensor(n, operands["element"], 1, rows, depth) for n, rows in (("a", M), ("b", N)))
        d = recording.tensor("d", "bf16", 1, M, N)
        scales = (None, None)
        if factors:
            across = K // operands["size"] // 4
            scales = tuple(
                recording.tensor(n, operands["factor"], 1, -(-rows // 128), across, 32, 4, 4)
                for n, rows in (("a_factors", M), ("b_factors", N))
            )
        schedule = make_scheduler_args(148, 8, None)
        recording.save(name, compiled, a, b, d, None, epilogue, schedule, make_varlen_args(None, None, None), *scales)


if __name__ == "__main__":
    main()
