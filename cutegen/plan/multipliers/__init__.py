"""Multipliers: `mma.sync` by warps, `wgmma` by warpgroups, a fused multiply-add by each thread."""
