"""The HTTP API: workflows, executions, triggers and operations, over the client."""
