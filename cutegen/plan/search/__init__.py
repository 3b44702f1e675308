"""Search for a problem: candidates, and the model of time that ranks them."""
