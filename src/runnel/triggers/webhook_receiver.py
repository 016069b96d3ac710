"""Answers the calls of webhooks: refused, or an execution that is stored when this returns."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.values import Json
from runnel.core.wording import quote_name
from runnel.errors import KeyReusedError
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock, Secrets
from runnel.triggers.webhook import WEBHOOK_LABEL
from runnel.triggers.webhook_delivery import (
    Delivery,
    build_delivery_input,
    derive_delivery_execution_id,
    find_delivery_key,
    parse_content,
)
from runnel.triggers.webhook_signatures import verify_delivery
from runnel.views.trigger import Webhook, WebhookKind

CheckCapacity: TypeAlias = Callable[[], Awaitable[None]]

BODY_HASH_LABEL = "runnel.body"
"""The hash of the body that an execution was started by, if its delivery had a name."""


class DeliveryResult(msgspec.Struct, frozen=True, kw_only=True):
    """Either the execution of this delivery, which `is_new` unless it came before; or the
    `challenge` that Slack wants to be answered with, and nothing was started.
    """

    execution_id: ExecutionId | None = None
    is_new: bool = False
    challenge: str | None = None


class WebhookReceiver:
    """`check_capacity` raises what is to be told while nothing new can be taken on."""

    def __init__(
        self,
        client: StoreClient,
        archive: Archive,
        clock: Clock,
        secrets: Secrets,
        *,
        check_capacity: CheckCapacity | None = None,
    ) -> None:
        self._check_capacity = check_capacity
        self._client = client
        self._archive = archive
        self._clock = clock
        self._secrets = secrets

    async def receive(self, webhook: Webhook, delivery: Delivery) -> DeliveryResult:
        """A delivery that came before is the same execution, and nothing is stored.

        Raises WebhookRefusedError before it looks at the body; InvalidInputError for one that does
        not fit; KeyReusedError for the name of an earlier one with another body; NotFoundError
        when the workflow is gone.
        """
        secret = None if webhook.secret is None else self._secrets.get(webhook.secret)
        verify_delivery(webhook, delivery, self._clock.now(), secret)
        content = parse_content(delivery)
        challenge = find_challenge(webhook, content)
        if challenge is not None:
            return DeliveryResult(challenge=challenge)
        key = find_delivery_key(webhook, delivery, content)
        if key is None:
            return await self._start(webhook, delivery, content, None)
        execution_id = derive_delivery_execution_id(webhook, key)
        received = DeliveryResult(execution_id=execution_id)
        if not await self._is_known(execution_id, key, delivery):
            received = await self._start(webhook, delivery, content, execution_id)
            await self._is_known(execution_id, key, delivery)  # somebody else may have been faster
        return received

    async def _is_known(self, execution_id: ExecutionId, key: str, delivery: Delivery) -> bool:
        header = await self._archive.get_header(execution_id)
        if header is not None and header.labels.get(BODY_HASH_LABEL) != delivery.body_hash:
            raise KeyReusedError(quote_name(key.partition(":")[2]), execution_id, "another body")
        return header is not None

    async def _start(
        self,
        webhook: Webhook,
        delivery: Delivery,
        content: Json,
        execution_id: ExecutionId | None,
    ) -> DeliveryResult:
        stored = await self._client.library.find(webhook.workflow, webhook.version)
        if self._check_capacity is not None:
            await self._check_capacity()
        labels = {**webhook.labels, WEBHOOK_LABEL: webhook.kind.value}
        if execution_id is not None:
            labels[BODY_HASH_LABEL] = delivery.body_hash
        execution = await self._client.create_execution(
            stored.graph.workflow,
            build_delivery_input(webhook, delivery, content),
            labels=labels,
            execution_id=execution_id,
            version=stored.version,
        )
        return DeliveryResult(execution_id=execution.execution_id, is_new=True)


def find_challenge(webhook: Webhook, content: Json) -> str | None:
    """What Slack asks a new address for, to see that it is the right one."""
    if webhook.kind is not WebhookKind.SLACK or not isinstance(content, dict):
        return None
    challenge = content.get("challenge")
    is_asked = content.get("type") == "url_verification" and isinstance(challenge, str)
    return challenge if is_asked else None
