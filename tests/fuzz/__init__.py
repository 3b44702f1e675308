"""Hostile testing: `python -m tests.fuzz` tries seeded random cases of each kind, and says which seed found what."""
