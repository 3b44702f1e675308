"""`cutegen show`: the layouts of a plan, one file for each part. Each part is a function from a plan to a `View`."""
