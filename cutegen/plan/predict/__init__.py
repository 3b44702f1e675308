"""Predicts what the hardware does with a plan: occupancy, memory traffic, tile orders in L2."""
