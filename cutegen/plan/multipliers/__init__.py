"""What multiplies: `mma.sync` by warps, or a fused multiply-add by each thread."""
