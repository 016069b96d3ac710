"""A Runnel server from outside: its workflows and executions, over HTTP."""
