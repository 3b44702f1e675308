"""Feeds bring k-tiles to shared memory: vector copies, plain copies through registers, or one warp by TMA."""
