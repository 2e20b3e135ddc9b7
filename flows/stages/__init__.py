"""One module per stage: what it is made of, and the command line of the job that makes it."""
