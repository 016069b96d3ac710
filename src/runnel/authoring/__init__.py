"""The ways to define a workflow (workflow files, decorators, builder), and the handler registry."""
