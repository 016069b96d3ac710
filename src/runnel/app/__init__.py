"""Puts the parts together: `wiring` builds them, `engine`, `roles` and `run` run them."""
