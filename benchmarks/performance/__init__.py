"""The figures of docs/performance.md and README.md: one run on a GPU, then tables written between markers.

problems.py   what is multiplied
choice.py     which kernel of cutegen's takes part: the plan's own choice for the problem
measure.py    the run, by the benchmark of cutegen/bench
figures.py    what was measured, and the JSON that it is kept in
merged.py     the figures of several processes as one
tables.py     the same as Markdown
documents.py  where it goes
"""
