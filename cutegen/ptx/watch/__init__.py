"""Watches an execution for races, uninitialised reads and missing waits, and counts the cost of memory requests."""
