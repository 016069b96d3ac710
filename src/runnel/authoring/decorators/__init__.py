"""`@task` and `@workflow`: define a workflow as a Python function.

Runnel calls the function once, with placeholders for inputs and results, and records each call of a
task as a node of the graph. This is called tracing.
"""
