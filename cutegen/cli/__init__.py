"""The command line, one file for each verb: it reads its arguments, calls the library, and shows the answer."""
