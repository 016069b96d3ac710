"""The bounds of a commit: checked before anything is written."""

from runnel.errors import CommitTooLargeError
from runnel.ports.store import Commit, CommitLimits


def check_bounds(commit: Commit, limits: CommitLimits) -> None:
    if commit.writes > limits.writes:
        raise CommitTooLargeError("writes", commit.writes, limits.writes)
    if commit.size_bytes > limits.size_bytes:
        raise CommitTooLargeError("bytes", commit.size_bytes, limits.size_bytes)
