"""What was measured on a GPU and is kept: the fastest spec for a problem, on which device, and the evidence."""
