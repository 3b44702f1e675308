"""Multiply instructions: the atom, the warps over which it is tiled, and where its sums are."""
