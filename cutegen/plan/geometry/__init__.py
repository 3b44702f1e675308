"""Which tile elements each thread and instruction touches, and which layouts a tile can have: from algebra alone."""
