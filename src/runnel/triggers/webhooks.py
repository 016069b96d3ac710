"""The webhooks that there are: one for each workflow."""

from collections.abc import Sequence

import msgspec

from runnel.core.checks.wording import did_you_mean, printable
from runnel.definitions import Definitions
from runnel.errors import ConflictError, NotFoundError
from runnel.library import Library
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock
from runnel.triggers.wanted_workflow import wanted_workflow
from runnel.triggers.webhook import (
    KIND,
    Webhook,
    check_webhook,
    decode_webhook,
    encode_webhook,
)


class Webhooks:
    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._records = backend.records
        self._library = Library(backend.archive, Definitions(backend.archive, clock))
        self._clock = clock

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> Webhook:
        """Raises InvalidTriggerError, NotFoundError for a workflow that does not exist, and
        ConflictError when it has a webhook, unless that is to be replaced.
        """
        check_webhook(webhook)
        await wanted_workflow(self._library, webhook.workflow, webhook.version)
        kept = msgspec.structs.replace(webhook, created_at=self._clock.now())
        while True:
            known = await self._records.get(KIND, webhook.workflow) if replaces else None
            revision = 0 if known is None else known.revision
            try:
                await self._records.put(
                    KIND, webhook.workflow, encode_webhook(kept), revision=revision
                )
            except ConflictError:
                if replaces:
                    continue
                raise
            return kept

    async def get(self, workflow: str) -> Webhook:
        """Raises NotFoundError, which names a similar one, and UnreadableFormatError."""
        found = await self.find(workflow)
        if found is None:
            raise await self._unknown(workflow)
        return found

    async def find(self, workflow: str) -> Webhook | None:
        """Raises UnreadableFormatError."""
        record = await self._records.get(KIND, workflow) if _is_name(workflow) else None
        return None if record is None else decode_webhook(record.data)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[Webhook]:
        """By workflow; `after` is the last one of the previous page."""
        records = await self._records.list(KIND, after=after, limit=limit)
        return [decode_webhook(record.data) for record in records]

    async def remove(self, workflow: str) -> None:
        """Raises NotFoundError."""
        if not _is_name(workflow) or not await self._records.delete(KIND, workflow):
            raise await self._unknown(workflow)

    async def _unknown(self, workflow: str) -> NotFoundError:
        known = [record.key for record in await self._records.list(KIND, limit=1_000)]
        close = did_you_mean(workflow, known).strip(" ()")
        hint = close or "'runnel webhook list' shows those that exist"
        return NotFoundError("webhook of workflow", printable(workflow), hint=hint)


def _is_name(text: str) -> bool:
    """Half a surrogate pair is in no name, and no store takes it."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False
