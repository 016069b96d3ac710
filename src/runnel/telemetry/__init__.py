"""What the engine tells an operator, made visible: log lines."""
