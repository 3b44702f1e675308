"""Many kernels at once, built ahead of time, and put into one file.

    wanted.py    which: specs x problems x targets, or a list in TOML
    building.py  planned and compiled beside each other, by any executor of concurrent.futures
    making.py    what was built, into a pack or into folders
    tables.py    how it went, in words and for programs

What is in a pack is for `cutegen.build.pack_file` to write and to read, and for `cutegen.dispatch.pack` to answer with.
"""
