"""Watches an execution for races, reads of nothing and missing waits, and counts what its memory requests cost."""
