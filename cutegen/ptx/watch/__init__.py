"""What an execution must not do: races, reads of nothing, missing waits; and what its memory requests cost."""
