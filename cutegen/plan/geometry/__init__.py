"""Tile elements that each thread and instruction touches, and the layouts that a tile can have: from algebra alone."""
