"""Finds the fastest spec for a problem on the GPU at hand: what is compared, how it is measured, and who does it."""
