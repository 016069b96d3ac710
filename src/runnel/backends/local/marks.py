"""A trace of what runs that the next process can read, for a store that keeps one."""

from typing import Protocol

from runnel.core.ids import Token

NO_MARK = -1


class Marks(Protocol):
    """Those of one partition."""

    def begin(self, token: Token) -> int:
        """The mark of an attempt that begins; NO_MARK when none can be made."""

    def end(self, mark: int) -> None: ...

    def excuse(self) -> None:
        """The process was told to end: should it die from now on, nothing that runs is to blame."""
