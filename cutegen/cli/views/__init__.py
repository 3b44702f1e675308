"""What `cutegen show` shows, one file for each part: each is a function from a plan to a `View`."""
