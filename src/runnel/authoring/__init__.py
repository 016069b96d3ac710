"""How users define workflows (documents, decorators, builder) and register the code of tasks."""
