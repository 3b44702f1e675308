"""The tile elements that threads and instructions access, and the possible layouts of a tile, by layout algebra."""
