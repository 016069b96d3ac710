"""A webhook: which workflow a call from outside starts, who may call, and what its input is."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from runnel.authoring.payloads import NAME_CHARS_MAX, check_text, encode_payload
from runnel.client.definitions import DefinitionCache, WorkflowLibrary, find_workflow_or_suggest
from runnel.core.templates.errors import TemplateError
from runnel.core.templates.template import compile_tree
from runnel.core.values import Json
from runnel.core.wording import describe_value, escape_unprintable, quote_name, suggest_name
from runnel.errors import ConflictError, InvalidTriggerError, NotFoundError, PayloadError
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.triggers.schedule import decode_record
from runnel.triggers.schedule_checks import find_label_problems
from runnel.views.trigger import WEBHOOK_FORMAT, Webhook, WebhookKind

WEBHOOK_KIND = "webhook"
TEMPLATE_ROOTS = ("body", "headers", "query")
MAPPING_BYTES_MAX = 64 * 1024
WEBHOOK_LABEL = "webhook"
"""The kind of the webhook that an execution was started by."""
_SECRET_NAME = re.compile(r"[a-z_][a-z0-9_]{0,99}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


def check_webhook(webhook: Webhook) -> None:
    """Raises InvalidTriggerError; each problem begins with the name of its field."""
    problems = [*_find_problems(webhook)]
    if problems:
        raise InvalidTriggerError(problems, source=f"webhook of {quote_name(webhook.workflow)}")


def _find_problems(webhook: Webhook) -> Iterator[str]:
    try:
        check_text(webhook.workflow, "workflow", chars_max=NAME_CHARS_MAX)
    except PayloadError as error:
        yield str(error)
    if webhook.version is not None and webhook.version < 1:
        yield f"version: expected at least 1, got {webhook.version}"
    yield from _find_secret_problems(webhook)
    yield from find_label_problems(webhook.labels)
    if WEBHOOK_LABEL in webhook.labels:
        yield f"labels: '{WEBHOOK_LABEL}' is set by the webhook itself, to its kind"
    for field, template in (("mapping", webhook.mapping), ("delivery_id", webhook.delivery_id)):
        if template is not None:
            yield from _find_template_problems(field, template)


def _find_secret_problems(webhook: Webhook) -> Iterator[str]:
    secret, is_open = webhook.secret, webhook.kind is WebhookKind.NONE
    if is_open and secret is not None:
        yield "secret: a webhook of kind 'none' has none; name another kind, or leave it out"
    if not is_open and secret is None:
        yield f"secret: a webhook of kind '{webhook.kind}' needs the name of one"
    if secret is not None and _SECRET_NAME.fullmatch(secret) is None:
        yield (
            f"secret: expected the name of a secret, lower-case letters, digits and '_', "
            f"got {describe_value(secret)}"
        )
    if _HEADER_NAME.fullmatch(webhook.header) is None:
        yield f"header: expected the name of a header, got {describe_value(webhook.header)}"


def _find_template_problems(field: str, template: Json) -> Iterator[str]:
    try:
        size = len(encode_payload(template, where=field))
        if size > MAPPING_BYTES_MAX:
            yield f"{field}: it has {size:,} bytes, at most {MAPPING_BYTES_MAX:,} are allowed"
            return
        tree = compile_tree(template, where=field)
    except (PayloadError, TemplateError) as error:
        yield str(error)
        return
    for root in sorted({reference.root for reference in tree.references} - set(TEMPLATE_ROOTS)):
        yield f"{field}: there is no '{root}'; there is: {', '.join(TEMPLATE_ROOTS)}"


_decoder = msgspec.json.Decoder(Webhook)


def encode_webhook(webhook: Webhook) -> bytes:
    return msgspec.json.encode(webhook)


def decode_webhook(data: bytes) -> Webhook:
    """Raises UnreadableFormatError, NewerFormatError."""
    return decode_record(data, _decoder, subject="a webhook", newest_format=WEBHOOK_FORMAT)


# The webhooks that there are: one for each workflow.


class WebhookStore:
    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._records = backend.records
        self._library = WorkflowLibrary(backend.archive, DefinitionCache(backend.archive, clock))
        self._clock = clock

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> Webhook:
        """Raises InvalidTriggerError, NotFoundError for a workflow that does not exist, and
        ConflictError when it has a webhook, unless that is to be replaced.
        """
        check_webhook(webhook)
        await find_workflow_or_suggest(self._library, webhook.workflow, webhook.version)
        kept = msgspec.structs.replace(webhook, created_at=self._clock.now())
        while True:
            known = await self._records.get(WEBHOOK_KIND, webhook.workflow) if replaces else None
            revision = 0 if known is None else known.revision
            try:
                await self._records.put(
                    WEBHOOK_KIND, webhook.workflow, encode_webhook(kept), revision=revision
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
            raise await self._build_not_found_error(workflow)
        return found

    async def find(self, workflow: str) -> Webhook | None:
        """Raises UnreadableFormatError."""
        record = await self._records.get(WEBHOOK_KIND, workflow) if _is_name(workflow) else None
        return None if record is None else decode_webhook(record.data)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[Webhook]:
        """By workflow; `after` is the last one of the previous page."""
        records = await self._records.list(WEBHOOK_KIND, after=after, limit=limit)
        return [decode_webhook(record.data) for record in records]

    async def remove(self, workflow: str) -> None:
        """Raises NotFoundError."""
        if not _is_name(workflow) or not await self._records.delete(WEBHOOK_KIND, workflow):
            raise await self._build_not_found_error(workflow)

    async def _build_not_found_error(self, workflow: str) -> NotFoundError:
        known = [record.key for record in await self._records.list(WEBHOOK_KIND, limit=1_000)]
        close = suggest_name(workflow, known).strip(" ()")
        hint = close or "'runnel webhook list' shows those that exist"
        return NotFoundError("webhook of workflow", escape_unprintable(workflow), hint=hint)


def _is_name(text: str) -> bool:
    """Half a surrogate pair is in no name, and no store takes it."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False
