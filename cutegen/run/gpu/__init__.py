"""Launches on a GPU: the cubin (launch.py), tensor maps (tensor_maps.py), memory beside the operands (workspace.py)."""
