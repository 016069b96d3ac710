"""Where the functions of an execution are: remembered with it, for whoever goes on with it."""

SOURCE_LABEL = "runnel.source"
"""The folder that `resume` puts where `import` looks first."""
