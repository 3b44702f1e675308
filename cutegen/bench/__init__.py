"""The benchmark: checked results, then times, beside other contenders and what the hardware allows.

suites.py        problems, their operations and bytes
measure.py       the timing loop, the only one
mma_peak.py      a PTX kernel of nothing but mma.sync; ceilings.py measures it, and copies
contenders.py    who else multiplies: torch, Triton (triton_gemm.py), CUTLASS's example (cutlass_example.py)
benchmark.py     checked results, then times
tables.py        the results in words and numbers
roofline_svg.py  the same as a picture
"""
