"""`data_processor`: small reshaping of JSON data between two nodes, without code.

`operation` and `data` are always given; `data` is a list unless the table says otherwise. A field
is a path such as `total` or `customer.address.city`, with numbers for positions in lists. What a
path does not find is an error, unless `missing` says `null` or `omit`.

pick       an object, or a list of objects, with only some fields
           fields: list of paths, or object of new name to path; missing
map        each item of a list as the value at `field`, or as a new object of `fields`
           field: path; fields: as above; set: object of constants, with fields; missing
filter     the items of a list for which a condition holds, or several
           field, op, value; where: list of such objects; match: all (default) or any
merge      a list of objects as one, where the last wins; a list of lists as one list
           deep: true merges objects inside objects too
aggregate  one value for a whole list, or an object of several
           function, field; aggregates: object of name to {function, field}
sort       a list in order; equal items keep theirs
           by: path or list of paths, none for plain items; descending: true or false
group      an object of key to items, or of key to aggregates of its items
           by: path; aggregates: as above

op: == != < <= > >= in not_in contains exists missing. function: count sum avg min max first last
unique list; each takes the values at `field`, or the items themselves.
"""

from collections.abc import Callable, Mapping

from runnel.authoring.calls import Call, Mode
from runnel.core.handler_settings import OPERATIONS
from runnel.core.json_types import Json
from runnel.errors import InputError
from runnel.handlers.data_aggregates import aggregate, group
from runnel.handlers.data_paths import refuse
from runnel.handlers.data_selection import filter_items, map_items, merge, pick, sort_items

# Above this many items, the work is done in a thread: the loop has others to serve.
ITEMS_ON_LOOP_MAX = 1_000


APPLY: Mapping[str, Callable[[Json, Mapping[str, Json]], Json]] = {
    "pick": pick,
    "map": map_items,
    "filter": filter_items,
    "merge": merge,
    "aggregate": aggregate,
    "sort": sort_items,
    "group": group,
}


def plan(config: Json) -> Call:
    data = config.get("data")
    is_small = not isinstance(data, list | dict) or len(data) <= ITEMS_ON_LOOP_MAX
    mode = Mode.LOOP if is_small else Mode.THREAD
    return Call(function=process, mode=mode, positional=(config,))


def process(config: Mapping[str, Json]) -> Json:
    """Raises InputError, in one sentence, for settings or data that do not fit the operation."""
    name = config.get("operation")
    if not isinstance(name, str) or name not in APPLY:
        raise InputError(
            f"data_processor: expected operation to be one of {', '.join(APPLY)}, got {name!r}"
        )
    if "data" not in config:
        raise refuse(name, "needs 'data', for example \"{{ fetch.rows }}\"")
    settings = {key: value for key, value in config.items() if key not in {"operation", "data"}}
    for key in settings:
        if key not in OPERATIONS[name]:
            raise refuse(name, f"has no setting '{key}', only {', '.join(OPERATIONS[name])}")
    return APPLY[name](config["data"], settings)
