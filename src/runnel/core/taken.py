"""One node or item that a rerun does not run again."""

import msgspec

from runnel.core.ids import NO_ITEM, NodeId
from runnel.core.run_when import SkipReason
from runnel.core.values import Value


class Taken(msgspec.Struct, frozen=True, omit_defaults=True):
    """Either its `output`, or why it was skipped; `detail` is what its own code said then."""

    node: NodeId
    item: int = NO_ITEM
    output: Value | None = None
    skip: SkipReason | None = None
    detail: str = ""
