"""Keeps what was measured on a GPU: the fastest spec for a problem, on which device, and the evidence."""
