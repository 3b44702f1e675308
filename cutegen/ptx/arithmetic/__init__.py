"""PTX's float formats and what a tensor core computes, without registers."""
