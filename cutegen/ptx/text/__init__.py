"""PTX text as values: tokens, types, declarations, instructions with their operands, the control-flow graph."""
