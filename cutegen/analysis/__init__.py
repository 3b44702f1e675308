"""Predicted against obtained.

limits.py        cycles of each resource for one k-tile
counters.py      predicted hardware counters, ncu, the CPU executor
sass.py          the main loop in the disassembly
report.py        one kernel: predictions beside what compiler, CPU executor and GPU made of it
"""
