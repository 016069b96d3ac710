"""What deciding answers: the events that are true now, and the effects that follow from them."""

from collections.abc import Sequence

import msgspec

from runnel.core.effects import Effect
from runnel.core.events import AnyEvent


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The events have already been applied to the aggregate; nothing has left it yet."""

    events: Sequence[AnyEvent] = ()
    effects: Sequence[Effect] = ()


NOTHING = Decision()
