"""Hypothesis without a deadline: the machines that run these tests are shared, and time is tested in test_cost.py."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
