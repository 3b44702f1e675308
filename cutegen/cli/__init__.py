"""The command line: one file for each verb. A verb only reads its arguments, calls the library, and shows the answer."""
