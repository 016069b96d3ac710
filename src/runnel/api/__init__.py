"""The HTTP API of workflows, executions, triggers and operations, on top of the client."""
