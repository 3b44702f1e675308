"""Predicts what the hardware does with a plan: occupancy, memory traffic, instructions in the PTX text, tile orders
in L2.
"""
