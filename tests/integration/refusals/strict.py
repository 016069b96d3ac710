"""Requests with JSON values of almost the right type: the API does not convert them."""

from typing import Any

from tests.integration.refusals.refused_request import OPEN_ID, REQUEST, RUN, RefusedRequest

SCHEDULE = {"id": "strict", "workflow": "waiting", "interval_s": 60}
_SENT: list[tuple[str, str, dict[str, Any], str]] = [
    ("a number as text", RUN, {"version": "1"}, "version"),
    ("a fraction for a number", RUN, {"version": 1.5}, "version"),
    ("true for a number", RUN, {"version": True}, "version"),
    ("labels that are null", RUN, {"labels": None}, "labels"),
    ("0 for false", f"/v1/executions/{OPEN_ID}/cancel", {"force": 0}, "force"),
    ("text for true", f"/v1/executions/{OPEN_ID}/cancel", {"force": "yes"}, "force"),
    ("0 for false in a schedule", "/v1/schedules", {**SCHEDULE, "is_paused": 0}, "is_paused"),
    ("a number for a time", "/v1/schedules", {**SCHEDULE, "starts_at": 1_800_000_000}, "starts_at"),
    ("digits for a time", "/v1/schedules", {**SCHEDULE, "ends_at": "1800000000"}, "ends_at"),
    ("text for seconds", "/v1/schedules", {**SCHEDULE, "interval_s": "60"}, "interval_s"),
    ("a number for a policy", "/v1/schedules", {**SCHEDULE, "overlap": 1}, "overlap"),
    ("a number for now", "/v1/triggers/cron/dispatch", {"now": 0}, "now"),
    ("1 for every", "/v1/executions/cancel", {"every": 1}, "every"),
    ("text for all", "/v1/dead-letters/purge", {"all": "true"}, "all"),
    ("days as text", "/v1/tokens", {"name": "x", "scopes": ["read"], "days": "9"}, "days"),
]
STRICT = [
    RefusedRequest(name=name, path=path, body=body, status=422, code=REQUEST, says=says)
    for name, path, body, says in _SENT
]
