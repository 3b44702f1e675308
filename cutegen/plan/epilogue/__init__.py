"""The epilogue: what is fused into it, and how C reaches global memory."""
