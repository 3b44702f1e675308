"""Sizes that every target shares, each with its source."""

WARP = 32
"""Threads per warp (CUDA C++ Programming Guide, "SIMT Architecture")."""
WARPGROUP = 4 * WARP
"""Threads per warpgroup: four consecutive warps, the first with a rank divisible by 4 (PTX ISA, "wgmma")."""
MAX_THREADS_PER_CTA = 1024
"""Maximum threads per CTA (CUDA C++ Programming Guide, "Compute Capabilities")."""
MAX_CLUSTER_CTAS = 8
"""Maximum CTAs per cluster on every GPU with clusters (CUDA C++ Programming Guide, "Thread Block Clusters")."""
WGMMA_ROWS = 64
"""Rows of A that every wgmma multiplies (PTX ISA, "wgmma.mma_async": `.shape`)."""
REGISTER_BITS = 32
"""Bits per register of a thread."""
BANKS = 32
BANK_BYTES = 4
"""Banks of shared memory, and the bytes of each per cycle (CUDA C++ Programming Guide, "Shared Memory")."""
BANK_ROW_BYTES = BANKS * BANK_BYTES
"""Bytes that all banks serve per cycle: addresses this far apart are in the same bank."""
LINE_BYTES = 128
"""A line of L1 and of L2 (CUDA C++ Programming Guide, "Device Memory Accesses")."""
SECTOR_BYTES = 32
"""The part of a line that is read or written at once (CUDA C++ Programming Guide, "Device Memory Accesses")."""
SCHEDULERS = 4
"""Warp schedulers per SM, each of which issues one instruction per cycle (the same guide)."""
SWIZZLE_ROWS = 8
"""Rows after which the swizzle of a tensor map, or of a descriptor, repeats (PTX ISA, "Tensor swizzling modes")."""
BULK_ALIGN_BYTES = 128
"""Alignment of a tensor map's box in shared memory (PTX ISA, "cp.async.bulk.tensor")."""
