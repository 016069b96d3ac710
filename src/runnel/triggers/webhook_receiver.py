"""Receives webhook deliveries: verifies each delivery and starts its execution."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.message_text import quote_name
from runnel.core.values import Json
from runnel.errors import KeyReusedError, RunnelError
from runnel.ports import telemetry as names
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock, Secrets
from runnel.ports.telemetry import NullTelemetry, Telemetry
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
"""Label of an execution whose delivery had a key. Its value is the hash of the delivery's body."""


class DeliveryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a delivery: an execution, or the `challenge` that Slack expects back.

    `is_new` is False if the same delivery was received before. A challenge starts no execution.
    """

    execution_id: ExecutionId | None = None
    is_new: bool = False
    challenge: str | None = None


class WebhookReceiver:
    """Verifies deliveries and starts their executions.

    `check_capacity` raises an error while the system accepts no new executions.
    """

    def __init__(
        self,
        client: StoreClient,
        archive: Archive,
        clock: Clock,
        secrets: Secrets,
        *,
        check_capacity: CheckCapacity | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._check_capacity = check_capacity
        self._client = client
        self._archive = archive
        self._clock = clock
        self._secrets = secrets
        self._telemetry = telemetry or NullTelemetry()

    async def receive(self, webhook: Webhook, delivery: Delivery) -> DeliveryResult:
        """Starts the execution of a delivery; a repeated delivery returns the first execution.

        The execution is stored when this method returns. Raises WebhookRefusedError for a wrong
        token or signature, before the body is parsed. Raises InvalidInputError if the body does not
        fit the workflow. Raises KeyReusedError if an earlier delivery with the same key had another
        body, and NotFoundError if the workflow was deleted. A refusal is also reported to the
        operator, because the sender often does not show it.
        """
        try:
            return await self._receive(webhook, delivery)
        except RunnelError as error:
            self._telemetry.event(
                names.WEBHOOK_REFUSED, workflow=webhook.workflow, problem=str(error)
            )
            raise

    async def _receive(self, webhook: Webhook, delivery: Delivery) -> DeliveryResult:
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
            # Raises KeyReusedError if another process used the key for another body meanwhile.
            await self._is_known(execution_id, key, delivery)
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
    """Returns the challenge with which Slack verifies a new URL; None for other content."""
    if webhook.kind is not WebhookKind.SLACK or not isinstance(content, dict):
        return None
    challenge = content.get("challenge")
    is_verification = content.get("type") == "url_verification"
    return challenge if is_verification and isinstance(challenge, str) else None
