"""Measure the figures of docs/performance.md and README.md on a GPU, and write them as tables between markers.

problems.py   the problems
choice.py     the spec of the measured kernels: cutegen selects one per problem
kinds.py      the majors, types and epilogues that are compared with fp16 TN
measure.py    the run, on the benchmark of cutegen/bench
energy.py     energy per GEMM
figures.py    the measured figures, and the JSON file that stores them
merged.py     the figures of several processes merged into one set
claims.py     the performance claims, checked against the figures
tables.py     the figures as Markdown
documents.py  the documents and markers that the tables go to
"""
