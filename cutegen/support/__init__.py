"""Numbers, words and columns of plain text, for every package."""
