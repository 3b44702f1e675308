"""Feeds copy k-tiles to shared memory: vector copies, plain copies through registers, or TMA by one warp."""
