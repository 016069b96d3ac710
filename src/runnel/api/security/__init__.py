"""Who may come in, how often, and what for."""
