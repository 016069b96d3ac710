"""Checks and stores webhooks. A webhook starts a workflow for each HTTP request to it."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from runnel.authoring.payloads import encode_payload
from runnel.client.definitions import DefinitionCache, WorkflowLibrary, find_workflow_or_suggest
from runnel.core.message_text import describe_value, quote_name
from runnel.core.templates.errors import TemplateError
from runnel.core.templates.template import compile_tree
from runnel.core.values import Json
from runnel.errors import ConflictError, InvalidTriggerError, NotFoundError, PayloadError
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.triggers.trigger import (
    build_unknown_trigger_error,
    decode_record,
    find_label_problems,
    find_target_problems,
)
from runnel.views import Timestamp
from runnel.views.trigger import WEBHOOK_FORMAT, Webhook, WebhookKind, WebhookView

WEBHOOK_KIND = "webhook"
TEMPLATE_ROOTS = ("body", "headers", "query")
MAPPING_BYTES_MAX = 64 * 1024
WEBHOOK_LABEL = "webhook"
"""Label of an execution. Its value is the kind of the webhook that started the execution."""
_SECRET_NAME = re.compile(r"[a-z_][a-z0-9_]{0,99}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


def check_webhook(webhook: Webhook) -> None:
    """Raises InvalidTriggerError for an invalid webhook; each problem begins with its field."""
    problems = [*_find_problems(webhook)]
    if problems:
        raise InvalidTriggerError(problems, source=f"webhook of {quote_name(webhook.workflow)}")


def _find_problems(webhook: Webhook) -> Iterator[str]:
    yield from find_target_problems(webhook.workflow, webhook.version)
    yield from _find_secret_problems(webhook)
    yield from find_label_problems(webhook.labels)
    if WEBHOOK_LABEL in webhook.labels:
        yield f"labels: '{WEBHOOK_LABEL}' is reserved for the kind of webhook; rename the label"
    for field, template in (("mapping", webhook.mapping), ("delivery_id", webhook.delivery_id)):
        if template is not None:
            yield from _find_template_problems(field, template)


def _find_secret_problems(webhook: Webhook) -> Iterator[str]:
    secret, is_open = webhook.secret, webhook.kind is WebhookKind.NONE
    if is_open and secret is not None:
        yield "secret: a webhook of kind 'none' uses no secret; remove it, or choose another kind"
    if not is_open and secret is None:
        yield f"secret: a webhook of kind '{webhook.kind}' needs the name of a secret"
    if secret is not None and _SECRET_NAME.fullmatch(secret) is None:
        yield (
            f"secret: expected a name of lower-case letters, digits and '_', got "
            f"{describe_value(secret)}"
        )
    if _HEADER_NAME.fullmatch(webhook.header) is None:
        yield f"header: expected the name of a header, got {describe_value(webhook.header)}"


def _find_template_problems(field: str, template: Json) -> Iterator[str]:
    try:
        size = len(encode_payload(template, where=field))
        if size > MAPPING_BYTES_MAX:
            yield f"{field}: expected at most {MAPPING_BYTES_MAX:,} bytes, got {size:,}"
            return
        tree = compile_tree(template, where=field)
    except (PayloadError, TemplateError) as error:
        yield str(error)
        return
    for root in sorted({reference.root for reference in tree.references} - set(TEMPLATE_ROOTS)):
        yield f"{field}: there is no '{root}'; expected one of: {', '.join(TEMPLATE_ROOTS)}"


_decoder = msgspec.json.Decoder(Webhook)


def encode_webhook(webhook: Webhook) -> bytes:
    return msgspec.json.encode(webhook)


def decode_webhook(data: bytes) -> Webhook:
    """Decodes a record; raises UnreadableFormatError or NewerFormatError."""
    return decode_record(data, _decoder, subject="a webhook", newest_format=WEBHOOK_FORMAT)


class WebhookStore:
    """The client's `Webhooks` over a store; a workflow has at most one."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._records = backend.records
        self._library = WorkflowLibrary(backend, DefinitionCache(backend.archive, clock), clock)
        self._clock = clock

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> WebhookView:
        """Stores a webhook; with `replaces`, replaces the current webhook of the workflow.

        Raises InvalidTriggerError if the webhook is invalid, and NotFoundError if the workflow does
        not exist. Raises ConflictError if the workflow has a webhook and `replaces` is False.
        """
        check_webhook(webhook)
        await find_workflow_or_suggest(self._library, webhook.workflow, webhook.version)
        webhook = msgspec.structs.replace(webhook, created_at=self._clock.now())
        while True:
            current = await self._records.get(WEBHOOK_KIND, webhook.workflow) if replaces else None
            revision = 0 if current is None else current.revision
            try:
                await self._records.put(
                    WEBHOOK_KIND, webhook.workflow, encode_webhook(webhook), revision=revision
                )
            except ConflictError:
                if replaces:
                    continue
                raise
            return build_webhook_view(webhook)

    async def get(self, workflow: str) -> WebhookView:
        """Returns the webhook of a workflow; raises NotFoundError or UnreadableFormatError."""
        webhook = await self.find(workflow)
        if webhook is None:
            raise await self._build_not_found_error(workflow)
        return build_webhook_view(webhook)

    async def find(self, workflow: str) -> Webhook | None:
        """Returns the webhook of a workflow, or None; raises UnreadableFormatError."""
        record = await self._records.get(WEBHOOK_KIND, workflow) if _is_name(workflow) else None
        return None if record is None else decode_webhook(record.data)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[WebhookView]:
        """Returns a page of webhooks. `after` is the last workflow of the previous page."""
        records = await self._records.list(WEBHOOK_KIND, after=after, limit=limit)
        return [build_webhook_view(decode_webhook(record.data)) for record in records]

    async def remove(self, workflow: str) -> None:
        """Removes the webhook of a workflow; raises NotFoundError."""
        if not _is_name(workflow) or not await self._records.delete(WEBHOOK_KIND, workflow):
            raise await self._build_not_found_error(workflow)

    async def _build_not_found_error(self, workflow: str) -> NotFoundError:
        return await build_unknown_trigger_error(
            self._records, WEBHOOK_KIND, workflow, title="webhook of workflow"
        )


def build_webhook_view(webhook: Webhook) -> WebhookView:
    """Builds the view of a webhook. It contains the name of the secret, never its value."""
    return WebhookView(
        workflow=webhook.workflow,
        version=webhook.version,
        kind=webhook.kind,
        secret=webhook.secret,
        header=webhook.header if webhook.kind is WebhookKind.TOKEN else None,
        mapping=webhook.mapping,
        delivery_id=webhook.delivery_id,
        labels=webhook.labels,
        created_at=Timestamp(webhook.created_at),
    )


def _is_name(text: str) -> bool:
    """Returns False for empty text, and for text that UTF-8 can't encode: no store accepts it."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False
