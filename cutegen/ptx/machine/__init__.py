"""The machine that runs an entry: memories, warps, CTAs, a launch."""
