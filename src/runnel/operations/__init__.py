"""What an operator looks at and acts on, the same from the command line and over HTTP."""
