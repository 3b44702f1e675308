"""Values that rules settle and plans are made of."""
