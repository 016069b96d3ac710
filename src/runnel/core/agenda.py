"""The working state of decisions, which no event stores. The agenda is derived again after a load.

`decide` changes the agenda of an execution directly. `decide` changes the execution itself only
through events. A loaded execution starts with an empty agenda. `hydrate_maps` and ResumeExecution
fill that agenda.
"""

from collections import deque

import msgspec

from runnel.core.values import Json, Value


class MapAgenda(msgspec.Struct, gc=False):
    """The agenda of one running map.

    `items` is the list of the map, or None until the list is evaluated. `is_queued` means that the
    map's next items are in the ready queue. `is_joining` means that the map's results are being
    written as one list.
    """

    items: list[Json] | None = None
    is_queued: bool = False
    is_joining: bool = False


# gc=False: the garbage collector need not track an agenda, because nothing in it refers back to it.
class Agenda(msgspec.Struct, gc=False):
    """The agenda of one execution, by node index of its graph.

    `ready` holds nodes and items that could run but have no slot. `awaited_blobs` holds nodes and
    items that wait until a blob is loaded or written. `pending_offloads` names the values that are
    being written to blobs for maps. `offloaded_values` holds the references to values that are
    already in blobs.
    """

    ready: deque[tuple[int, int]] = msgspec.field(default_factory=deque)
    # A dict instead of a set, because the garbage collector does not track a dict of this kind.
    awaited_blobs: dict[tuple[int, int], None] = {}
    pending_offloads: dict[str, None] = {}
    offloaded_values: dict[str, Value] = {}
    maps: dict[int, MapAgenda] = {}
    is_storing_output: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the agenda holds no work, so that the execution may leave the memory."""
        return not (
            self.ready
            or self.awaited_blobs
            or self.is_storing_output
            or any(map_agenda.is_joining for map_agenda in self.maps.values())
        )

    def get_map(self, index: int) -> MapAgenda:
        """Returns the agenda of the node's map; creates a new agenda if there is none."""
        map_agenda = self.maps.get(index)
        if map_agenda is None:
            map_agenda = self.maps[index] = MapAgenda()
        return map_agenda

    def get_item(self, index: int, item: int) -> Json:
        """Returns the value of an item, or None if the list of the map is not evaluated."""
        map_agenda = self.maps.get(index)
        return map_agenda.items[item] if map_agenda and map_agenda.items else None

    def reset(self) -> None:
        """Clears the work in progress, so that ResumeExecution can derive it again.

        Lists of maps and offloaded values stay.
        """
        self.ready.clear()
        self.awaited_blobs.clear()
        self.pending_offloads.clear()
        self.is_storing_output = False
        for map_agenda in self.maps.values():
            map_agenda.is_queued = False
            map_agenda.is_joining = False
