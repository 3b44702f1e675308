"""The tests, a package so that they can share helpers: `from tests.ptx.micro_table import ...`."""
