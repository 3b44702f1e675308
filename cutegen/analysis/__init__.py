"""Predicted against obtained.

limits.py        cycles of each resource for one k-tile
counters.py      predicted hardware counters, ncu, the CPU executor; bulk_counters.py those of wgmma and bulk copies
sass.py          the main loop in the disassembly
report.py        one kernel: predictions beside what compiler and CPU executor made of it
measured.py      the same kernel on a GPU: times, ceilings, hardware counters
report_text.py   all of it as a page
comparison.py    several specs side by side; comparison_text.py and comparison_picture.py show it
"""
