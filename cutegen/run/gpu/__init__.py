"""Launches on a GPU: the cubin (launch.py, by raw_driver.py), tensor maps (tensor_maps.py), memory beside the operands (workspace.py)."""
