"""The command line: one file per command; heavy imports are made by the command that needs them."""
