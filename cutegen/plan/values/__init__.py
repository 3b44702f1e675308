"""Values that rules decide and that make up a plan."""
