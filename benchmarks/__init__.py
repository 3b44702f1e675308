"""Measurements: of speed on a GPU (performance/, host_cost.py), and of what cutegen itself costs."""
