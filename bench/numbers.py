"""Parses numbers of command lines."""

import argparse


def parse_positive(text: str) -> int:
    """Parses a whole number of at least 1 for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got '{text}'")
    return value
