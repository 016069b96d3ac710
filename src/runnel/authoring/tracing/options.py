"""The options of a task or a node: the fields of a node, as Python spells them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypedDict

import msgspec

from runnel.core.checks.values import CACHE, NAME, NODE, RETRY, Check
from runnel.core.checks.wording import did_you_mean, shown
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.workflow import Cache
from runnel.errors import InputError


class NodeOptions(TypedDict, total=False):
    """`retries` is a number, or a whole policy; times are in seconds, or timedeltas.

    `cache` is True, how long a result is kept, or a Cache with a key of its own.

    `name` is what ids are made from (`fetch`, `fetch_2`); `id` is the id of one single node.
    """

    name: str
    id: str
    retries: int | RetryPolicy
    timeout: float | timedelta
    soft_timeout: float | timedelta
    run_when: str
    resource_tag: str
    concurrency_key: str
    concurrency_limit: int
    queue: str
    cache: bool | float | timedelta | Cache
    mode: str


MODES = ("auto", "loop", "thread", "process")
_MODE = Check("one of " + ", ".join(MODES), lambda value: value in MODES)
_FIELDS = {"timeout": "timeout_seconds", "soft_timeout": "soft_timeout_seconds"}
_CHECKS: Mapping[str, Check] = {
    "name": NAME,
    "id": NAME,
    "timeout": NODE["timeout_seconds"],
    "soft_timeout": NODE["soft_timeout_seconds"],
    "run_when": NODE["run_when"],
    "resource_tag": NODE["resource_tag"],
    "concurrency_limit": NODE["concurrency_limit"],
    "queue": NODE["queue"],
    "mode": _MODE,
}


def checked(options: Mapping[str, Any], *, of: str) -> dict[str, Any]:
    """As they are kept; raises InputError, which names the option and what has it."""
    known = NodeOptions.__annotations__
    kept = {}
    for name, value in options.items():
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
            raise InputError(f"{of}: there is no option '{name}'{hint}")
        if value is None:
            continue
        kept[name] = _checked(name, value, of)
    return kept


def fields_of(options: Mapping[str, Any], default: RetryPolicy) -> dict[str, Any]:
    """The fields of the node that these options set."""
    found: dict[str, Any] = {"retry": _policy(options.get("retries"), default)}
    for name, value in options.items():
        if name in ("name", "id", "mode", "retries", "concurrency_key"):
            continue
        found[_FIELDS.get(name, name)] = RunWhen(value) if name == "run_when" else value
    return found


def _checked(name: str, value: Any, of: str) -> Any:
    if isinstance(value, timedelta) and name in _FIELDS:
        value = value.total_seconds()
    if name == "retries":
        if not isinstance(value, RetryPolicy) and not RETRY["max_retries"].fits(value):
            raise InputError(
                f"{of}: retries: expected a whole number ≥ 0 or a RetryPolicy, got {shown(value)}"
            )
        return value
    if name == "cache":
        return _cache(value, of)
    check = _CHECKS.get(name)
    if check is not None and not check.fits(value):
        raise InputError(f"{of}: {name}: expected {check.expected}, got {shown(value)}")
    return float(value) if name in _FIELDS else value


def _cache(value: Any, of: str) -> Cache | None:
    if isinstance(value, Cache):
        return value
    if isinstance(value, bool):
        return Cache() if value else None
    kept_s = value.total_seconds() if isinstance(value, timedelta) else value
    if not CACHE["ttl_seconds"].fits(kept_s):
        raise InputError(
            f"{of}: cache: expected True, a number above 0 or a Cache, got {shown(value)}"
        )
    return Cache(ttl_seconds=float(kept_s))


def _policy(retries: int | RetryPolicy | None, default: RetryPolicy) -> RetryPolicy:
    if isinstance(retries, RetryPolicy):
        return retries
    return default if retries is None else msgspec.structs.replace(default, max_retries=retries)
