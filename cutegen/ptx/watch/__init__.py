"""Watches an execution for races, uninitialized reads and missing waits, and counts the cost of memory requests."""
