"""Numbers on a command line."""

import argparse


def parse_positive(text: str) -> int:
    """For argparse, which says it in one sentence."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got '{text}'")
    return value
