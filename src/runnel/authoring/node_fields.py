"""The keys of a node in a document, and what each may hold."""

from collections.abc import Mapping
from typing import Any

from runnel.authoring.fields import (
    WRONG,
    Checked,
    Field,
    Table,
    Wrong,
    number,
    plain,
)
from runnel.authoring.literals import as_expression
from runnel.authoring.place import Place
from runnel.core.checks.values import CACHE, NAME, NODE, RETRY, Check
from runnel.core.checks.wording import shown
from runnel.core.json_types import Json
from runnel.core.run_when import RunWhen
from runnel.core.workflow import Cache

OBJECT = Check("an object", lambda value: isinstance(value, dict), {"type": "object"})


def names(value: Json, place: Place) -> tuple[str, ...]:
    """A list of names, or one name alone; those that are none are refused and left out."""
    if not isinstance(value, str | list):
        place.expected("a list of names", value)
        return ()
    found = [value] if isinstance(value, str) else value
    for index, name in enumerate(found):
        if not NAME.fits(name):
            place.item(index).expected(NAME.expected, name)
    return tuple(name for name in found if NAME.fits(name))


RETRY_TABLE = Table(
    "an object, a number of retries, or false",
    {
        "max_retries": Field(plain(RETRY["max_retries"])),
        "initial_delay": Field(number(RETRY["initial_delay"])),
        "max_delay": Field(number(RETRY["max_delay"])),
        "exponential_base": Field(number(RETRY["exponential_base"])),
        "jitter": Field(plain(RETRY["jitter"])),
        "retry_on": Field(names),
        "no_retry_on": Field(names),
    },
)


def _retry(value: Json, place: Place) -> Mapping[str, Any]:
    """Only what is said: the rest of the policy is not known here."""
    if value is False:
        return {"max_retries": 0}
    if isinstance(value, int) and value is not True:
        return {"max_retries": plain(RETRY["max_retries"])(value, place)}
    return RETRY_TABLE.read(value, place)


def _condition(value: Json, place: Place) -> Any:
    check = NODE["condition"]
    return shown(value) if isinstance(value, bool) else plain(check)(value, place)


def _for_each(value: Json, place: Place) -> str | Wrong:
    if isinstance(value, dict):
        items: str | Wrong = FOR_EACH_TABLE.read(value, place).get("items", WRONG)
        return items
    return _items(value, place)


def _items(value: Json, place: Place) -> str | Wrong:
    if isinstance(value, list):
        return as_expression(value, place)
    if not NODE["for_each"].fits(value):
        place.expected("a list, an expression, or an object with 'items'", value)
        return WRONG
    return str(value)


FOR_EACH_TABLE = Table("an object", {"items": Field(_items, is_required=True)})


def _run_when(value: Json, place: Place) -> RunWhen | Wrong:
    checked = plain(NODE["run_when"])(value, place)
    return WRONG if checked is WRONG else RunWhen(checked)


CACHE_TABLE = Table(
    "true, or an object with 'key' or 'ttl_seconds'",
    {
        "key": Field(plain(CACHE["key"])),
        "ttl_seconds": Field(number(CACHE["ttl_seconds"]), alias="ttl"),
    },
)


def _cache(value: Json, place: Place) -> Cache | None:
    if isinstance(value, bool):
        return Cache() if value else None
    return Cache(**CACHE_TABLE.read(value, place))


def _checked(field: str) -> Checked:
    return plain(NODE[field])


NODE_TABLE = Table(
    "an object with 'id' and 'handler'",
    {
        "id": Field(plain(NAME), alias="node_id", is_required=True),
        "handler": Field(_checked("handler"), is_required=True),
        "config": Field(plain(OBJECT)),
        "dependencies": Field(names, alias="depends_on"),
        "condition": Field(_condition),
        "run_when": Field(_run_when),
        "retry": Field(_retry, alias="retry_config"),
        "timeout_seconds": Field(number(NODE["timeout_seconds"])),
        "soft_timeout_seconds": Field(number(NODE["soft_timeout_seconds"])),
        "resource_tag": Field(_checked("resource_tag")),
        "concurrency_key": Field(_checked("concurrency_key")),
        "concurrency_limit": Field(_checked("concurrency_limit")),
        "for_each": Field(_for_each),
        "queue": Field(_checked("queue")),
        "cache": Field(_cache),
    },
)
