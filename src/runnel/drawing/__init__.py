"""Graphs for programs that draw them."""
