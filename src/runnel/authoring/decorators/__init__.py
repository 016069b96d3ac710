"""Decorated functions: the body of a workflow is run once, with placeholders for what will be."""
