"""Mutation testing: plants small mistakes in cutegen's sources, one at a time, and says which of them no test sees.

`python -m tests.mutation --help`; docs/testing.md says how to read the figure.
"""
