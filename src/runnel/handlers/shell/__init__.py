"""Programs as tasks: in a clean environment, with bounded output, ended as a whole group."""
