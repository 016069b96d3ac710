"""What should not happen: a rule of Runnel's own is broken, or what is stored can't be read."""

from runnel.errors.root import RunnelError


class IllegalMoveError(RunnelError):
    """A bug: a state change that the table of moves does not have."""

    code = "illegal_move"

    def __init__(self, what: str, found: str, wanted: str) -> None:
        super().__init__(f"{what} can't move from {found} to {wanted}")
        self.what = what
        self.found = found
        self.wanted = wanted


class BrokenInvariantError(RunnelError):
    """A bug: something that must always hold does not."""

    code = "broken_invariant"


class UnreadableFormatError(RunnelError):
    """Stored bytes that this version can't read: damaged, or not Runnel's.

    No StoreError: it is about one execution, and must not make anybody give up a partition.
    """

    code = "unreadable"


class NewerFormatError(UnreadableFormatError):
    """Stored by a later version: to be left alone until that one runs again."""

    code = "newer_format"
