"""Search for a problem: candidates, and the performance model that ranks them."""
