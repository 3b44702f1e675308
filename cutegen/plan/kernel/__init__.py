"""The values that a kernel consists of, one concept a module."""
