"""Finds the fastest spec for a problem on the present GPU: candidates, measurement, and the processes that do it."""
