"""Launches on a GPU.

The cubin and its tensor maps (launch.py, by raw_driver.py), additional memory (workspace.py).
"""
