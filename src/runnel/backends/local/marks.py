"""A trace of what runs that the next process can read, for a store that keeps one."""

from collections.abc import Mapping
from typing import Protocol

from runnel.core.ids import Ref, Token

NO_MARK = -1


class Marks(Protocol):
    """Those of one partition."""

    @property
    def suspects(self) -> Mapping[Ref, bool]:
        """What had just begun when its process died; True for one that was on trial then."""

    def begin(self, token: Token) -> int:
        """The mark of an attempt that begins; NO_MARK when none can be made."""

    def begin_trial(self, token: Token) -> int:
        """The same for a suspect; `set_trial` was called before."""

    def note(self, mark: int) -> None:
        """The attempt has run for a while: should its process die, it is no suspect."""

    def end(self, mark: int) -> None: ...

    def set_trial(self, *, is_on: bool) -> None:
        """Should the process die while a trial is on, only the suspect on trial is to blame."""
