"""Predicts the behavior of a plan: occupancy, memory traffic, tile orders in L2."""
