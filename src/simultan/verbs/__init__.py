"""The verbs of the command line, one file each: a typed function named like its file."""
