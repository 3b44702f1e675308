"""The command line, one file per verb: it reads its arguments, calls the library and shows the result."""
