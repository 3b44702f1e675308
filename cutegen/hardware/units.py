"""Sizes that every target shares, each with its source."""

from __future__ import annotations

WARP = 32
"""Threads of a warp (CUDA C++ Programming Guide, "SIMT Architecture")."""
WARPGROUP = 4 * WARP
"""Threads of a warpgroup: four warps in a row, the first of which has a rank that 4 divides (PTX ISA, "wgmma")."""
MAX_THREADS_PER_CTA = 1024
"""Threads of a CTA at most (CUDA C++ Programming Guide, "Compute Capabilities")."""
MAX_CLUSTER_CTAS = 8
"""CTAs of a cluster on every GPU that has clusters (CUDA C++ Programming Guide, "Thread Block Clusters")."""
WGMMA_ROWS = 64
"""Rows of A that every wgmma multiplies (PTX ISA, "wgmma.mma_async": `.shape`)."""
REGISTER_BITS = 32
"""Bits of a register of a thread."""
BANKS = 32
BANK_BYTES = 4
"""Banks of shared memory, and what each serves in a cycle (CUDA C++ Programming Guide, "Shared Memory")."""
BANK_ROW_BYTES = BANKS * BANK_BYTES
"""What all banks together serve in a cycle: addresses so far apart lie in the same bank."""
LINE_BYTES = 128
"""A line of L1 and of L2 (CUDA C++ Programming Guide, "Device Memory Accesses")."""
SECTOR_BYTES = 32
"""The part of a line that is read or written at once (CUDA C++ Programming Guide, "Device Memory Accesses")."""
SCHEDULERS = 4
"""Warp schedulers of a multiprocessor, each of which issues an instruction a cycle (the same guide)."""
SWIZZLE_ROWS = 8
"""Rows after which the swizzle of a tensor map, or of a descriptor, begins anew (PTX ISA, "Tensor swizzling modes")."""
BULK_ALIGN_BYTES = 128
"""A tensor map's box begins at a multiple of it in shared memory (PTX ISA, "cp.async.bulk.tensor")."""
