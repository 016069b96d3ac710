"""What deciding works out on the way and no event stores: derived again after a load.

`decide` changes the agenda of an execution and reads the execution itself, which changes by
events alone. A loaded execution starts with an empty agenda; `hydrate_maps` and ResumeExecution
fill it.
"""

from collections import deque

import msgspec

from runnel.core.values import Json, Value


class MapAgenda(msgspec.Struct, gc=False):
    """Of one running map: its list, and whether its next items are queued or its results joined.

    `items` is None until the list has been evaluated.
    """

    items: list[Json] | None = None
    is_queued: bool = False
    is_joining: bool = False


# gc=False, because nothing in it refers back to it: an agenda per execution costs the collector
# of garbage nothing.
class Agenda(msgspec.Struct, gc=False):
    """Of one execution, by node index of its graph.

    `ready` is what could run but has no slot, `awaited_blobs` which nodes and items wait until a
    blob is loaded or written, `pending_offloads` the values that are being written for maps,
    `offloaded_values` those that were.
    """

    ready: deque[tuple[int, int]] = msgspec.field(default_factory=deque)
    # Instead of a set: the collector of garbage never looks at such a dict.
    awaited_blobs: dict[tuple[int, int], None] = {}
    pending_offloads: dict[str, None] = {}
    offloaded_values: dict[str, Value] = {}
    maps: dict[int, MapAgenda] = {}
    is_storing_output: bool = False

    @property
    def is_empty(self) -> bool:
        """True when nothing about the execution is known in memory only."""
        return not (
            self.ready
            or self.awaited_blobs
            or self.is_storing_output
            or any(map_agenda.is_joining for map_agenda in self.maps.values())
        )

    def get_map(self, index: int) -> MapAgenda:
        """Returns the agenda of the node's map, a new one if there is none."""
        map_agenda = self.maps.get(index)
        if map_agenda is None:
            map_agenda = self.maps[index] = MapAgenda()
        return map_agenda

    def get_item(self, index: int, item: int) -> Json:
        """Returns None if the list of the map is not known."""
        map_agenda = self.maps.get(index)
        return map_agenda.items[item] if map_agenda and map_agenda.items else None

    def reset(self) -> None:
        """Forgets what is under way, before all of it is derived again; lists and blobs stay."""
        self.ready.clear()
        self.awaited_blobs.clear()
        self.pending_offloads.clear()
        self.is_storing_output = False
        for map_agenda in self.maps.values():
            map_agenda.is_queued = False
            map_agenda.is_joining = False
