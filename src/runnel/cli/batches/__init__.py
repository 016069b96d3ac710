"""Many executions of one workflow: one for each document of a file."""
