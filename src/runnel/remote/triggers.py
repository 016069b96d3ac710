"""Schedules and webhooks of a server, as commands keep those of a store."""

from collections.abc import Mapping, Sequence

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.json_types import Json
from runnel.remote.answers import seconds_of
from runnel.remote.paths import step
from runnel.remote.transport import Call, Transport
from runnel.triggers.schedule import KeptSchedule, Overlap, Progress, Schedule, Stored
from runnel.triggers.webhook import TOKEN_HEADER, Webhook, WebhookKind
from runnel.views import moment

SCHEDULES, WEBHOOKS = "/v1/schedules", "/v1/webhooks"


class RemoteSchedules:
    """Raises what the server does; labels of Runnel's own are not sent along."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(self, schedule: Schedule) -> KeptSchedule:
        body = {
            "id": schedule.id,
            "workflow": schedule.workflow,
            "version": schedule.version,
            "input": schedule.input,
            "labels": schedule.labels,
            "cron": schedule.cron,
            "interval_s": schedule.interval_s,
            "timezone": schedule.timezone,
            "overlap": schedule.overlap.value,
            "catch_up": schedule.catch_up,
            "is_paused": schedule.is_paused,
            "starts_at": moment(schedule.starts_at),
            "ends_at": moment(schedule.ends_at),
        }
        return _schedule(await self._transport.post(SCHEDULES, body))

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[KeptSchedule]:
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        answer = await self._transport.get(SCHEDULES, query)
        return [_schedule(each) for each in answer["items"]]

    async def get(self, schedule_id: str) -> Stored:
        found = await self._transport.get(f"{SCHEDULES}/{step(schedule_id)}")
        return Stored(_schedule(found), 0)

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> KeptSchedule:
        what = "pause" if is_paused else "resume"
        return _schedule(await self._transport.post(f"{SCHEDULES}/{step(schedule_id)}/{what}"))

    async def remove(self, schedule_id: str) -> None:
        await self._transport.send(Call(method="DELETE", path=f"{SCHEDULES}/{step(schedule_id)}"))


class RemoteWebhooks:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> Webhook:
        """Without `replaces`, raises ConflictError when the workflow has one."""
        body = {
            "version": webhook.version,
            "kind": webhook.kind.value,
            "secret": webhook.secret,
            "header": webhook.header,
            "mapping": webhook.mapping,
            "delivery_id": webhook.delivery_id,
            "labels": webhook.labels,
        }
        query = [] if replaces else [("is_new", "true")]
        data = msgspec.json.encode(body)
        path = _webhook_path(webhook.workflow)
        call = Call(method="PUT", path=path, query=query, body=data)
        return _webhook(await self._transport.send(call))

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[Webhook]:
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        answer = await self._transport.get(WEBHOOKS, query)
        return [_webhook(each) for each in answer["items"]]

    async def get(self, workflow: str) -> Webhook:
        return _webhook(await self._transport.get(_webhook_path(workflow)))

    async def remove(self, workflow: str) -> None:
        await self._transport.send(Call(method="DELETE", path=_webhook_path(workflow)))


def _webhook_path(workflow: str) -> str:
    return f"/v1/workflows/{step(workflow)}/triggers/webhook"


def _schedule(found: Mapping[str, Json]) -> KeptSchedule:
    schedule = Schedule(
        id=found["id"],
        workflow=found["workflow"],
        version=found["version"],
        input=found["input"],
        labels=found["labels"],
        cron=found["cron"],
        interval_s=found["interval_s"],
        timezone=found["timezone"],
        overlap=Overlap(found["overlap"]),
        catch_up=found["catch_up"],
        is_paused=found["is_paused"],
        starts_at=_seconds(found["starts_at"]),
        ends_at=_seconds(found["ends_at"]),
    )
    last = found["last_execution_id"]
    progress = Progress(
        cursor=0.0,
        fired=found["fired"],
        skipped=found["skipped"],
        missed=found["missed"],
        failed=found["failed"],
        last_tick=_seconds(found["last_tick"]),
        last_execution=None if last is None else ExecutionId(last),
        last_skipped=_seconds(found["last_skipped"]),
        last_error=found["last_error"],
    )
    created_at = seconds_of(found["created_at"])
    return KeptSchedule(schedule=schedule, nonce="", created_at=created_at, progress=progress)


def _webhook(found: Mapping[str, Json]) -> Webhook:
    return Webhook(
        workflow=found["workflow"],
        version=found["version"],
        kind=WebhookKind(found["kind"]),
        secret=found["secret"],
        header=found["header"] or TOKEN_HEADER,
        mapping=found["mapping"],
        delivery_id=found["delivery_id"],
        labels=found["labels"],
        created_at=seconds_of(found["created_at"]),
    )


def _seconds(found: str | None) -> float | None:
    return None if found is None else seconds_of(found)
