"""Launches on a GPU.

The cubin (launch.py, by raw_driver.py), tensor maps (tensor_maps.py), additional memory (workspace.py).
"""
