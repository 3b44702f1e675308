"""PTX's float formats and the arithmetic of a tensor core, without registers."""
