"""Keeps GPU measurements: the fastest spec for a problem, on which device, and the evidence."""
