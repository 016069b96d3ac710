"""Graphs for people: drawn with lines and boxes, listed by layer, or as Mermaid text."""
