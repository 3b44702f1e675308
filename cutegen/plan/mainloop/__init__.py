"""Main loops: how k-tiles reach shared memory, by plain copies, cp.async or TMA, and what they tell L2."""
