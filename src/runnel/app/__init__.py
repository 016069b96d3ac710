"""Assembles Runnel: `wiring` builds the components; `engine`, `roles` and `run` run them."""
