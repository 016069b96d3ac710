"""A delivery is one HTTP request to a webhook: its body, its key, and the input built from it."""

from collections.abc import Iterable, Mapping
from typing import Self
from urllib.parse import parse_qsl

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.message_text import describe_value, quote_name
from runnel.core.templates.errors import TemplateError
from runnel.core.templates.template import compile_tree
from runnel.core.values import Json
from runnel.errors import InvalidInputError
from runnel.triggers.trigger import RootScope, compute_hash, derive_execution_id
from runnel.views.trigger import Webhook, WebhookKind

# Headers with credentials and signatures. The input of an execution is stored, so these headers are
# left out.
SENSITIVE_HEADERS = frozenset(
    {
        "authorization",
        "cookie",
        "proxy-authorization",
        "x-hub-signature",
        "x-hub-signature-256",
        "x-slack-signature",
    }
)
GITHUB_DELIVERY_HEADER = "x-github-delivery"
REQUEST_ID_HEADERS = ("idempotency-key", "x-request-id")
KEY_CHARS_MAX = 500
FORM_FIELDS_MAX = 1_000
# No other kind of execution id begins with this letter.
_ID_PREFIX = "w"
_FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a delivery: headers by lower-case name, query, and the bytes of the body."""

    headers: Mapping[str, str]
    query: Mapping[str, Json]
    body: bytes

    @classmethod
    def from_pairs(
        cls, headers: Iterable[tuple[str, str]], query: Iterable[tuple[str, str]], body: bytes
    ) -> Self:
        """Builds a delivery; joins repeated headers, and makes lists of repeated parameters."""
        joined: dict[str, str] = {}
        for name, value in headers:
            key = name.lower()
            joined[key] = f"{joined[key]}, {value}" if key in joined else value
        return cls(headers=joined, query=_group_pairs(query), body=body)

    def get_header(self, name: str) -> str:
        """Returns a header without outer whitespace, or an empty text if the header is missing."""
        return self.headers.get(name, "").strip()

    @property
    def body_hash(self) -> str:
        return compute_hash(self.body)


def derive_delivery_execution_id(webhook: Webhook, key: str) -> ExecutionId:
    """Returns the execution id of a delivery, which is the same for a repeated delivery."""
    return derive_execution_id(_ID_PREFIX, webhook.workflow, key)


def find_delivery_key(webhook: Webhook, delivery: Delivery, content: Json) -> str | None:
    """Returns the key by which a repeated delivery is recognized; None if it has no key.

    `content` is the parsed body. Raises InvalidInputError if the template `delivery_id` of the
    webhook can't be resolved.
    """
    if webhook.delivery_id is not None:
        key = _resolve_template(webhook, "delivery_id", webhook.delivery_id, delivery, content)
        if not isinstance(key, str | int) or not 0 < len(str(key)) <= KEY_CHARS_MAX:
            raise InvalidInputError(
                f"the delivery_id of webhook {quote_name(webhook.workflow)}: expected a text of "
                f"up to {KEY_CHARS_MAX} characters, or a whole number, got {describe_value(key)}"
            )
        return f"own:{key}"
    if webhook.kind is WebhookKind.GITHUB:
        # GitHub does not sign the delivery id, so the key also contains the hash of the body.
        return f"github:{delivery.get_header(GITHUB_DELIVERY_HEADER)}:{delivery.body_hash}"
    if webhook.kind is WebhookKind.SLACK:
        # A repeated event has another time and another signature, but the same event id.
        event_id = content.get("event_id") if isinstance(content, dict) else None
        if isinstance(event_id, str) and event_id:
            return f"slack:{event_id}"
        return f"slack:{delivery.get_header('x-slack-signature')}"
    for name in REQUEST_ID_HEADERS:
        if value := delivery.get_header(name):
            return f"{name}:{value}"
    return None


def build_delivery_input(webhook: Webhook, delivery: Delivery, content: Json) -> Json:
    """Builds the input of the execution; raises InvalidInputError if a template can't be filled."""
    if webhook.mapping is None:
        return _build_template_values(webhook, delivery, content)
    return _resolve_template(webhook, "mapping", webhook.mapping, delivery, content)


def parse_content(delivery: Delivery) -> Json:
    """Parses the body: JSON, the fields of a form, or text; None without a body.

    GitHub and Slack send forms whose only field `payload` contains JSON; this JSON is parsed, too.
    Raises InvalidInputError for a body that can't be parsed.
    """
    if not delivery.body:
        return None
    kind = delivery.get_header("content-type").partition(";")[0].strip().lower()
    text = _decode_text(delivery.body)
    if kind == _FORM_CONTENT_TYPE:
        fields = _parse_form(text)
        payload = fields.get("payload")
        return _decode_json(payload) if len(fields) == 1 and isinstance(payload, str) else fields
    if kind == "application/json" or kind.endswith("+json"):
        return _decode_json(text)
    return text


def _build_template_values(webhook: Webhook, delivery: Delivery, content: Json) -> dict[str, Json]:
    excluded = SENSITIVE_HEADERS
    if webhook.kind is WebhookKind.TOKEN:
        excluded |= {webhook.header.lower()}
    headers = {name: text for name, text in delivery.headers.items() if name not in excluded}
    return {"body": content, "headers": headers, "query": dict(delivery.query)}


def _resolve_template(
    webhook: Webhook, field: str, template: Json, delivery: Delivery, content: Json
) -> Json:
    try:
        tree = compile_tree(template, where=field)
        return tree.resolve(RootScope(_build_template_values(webhook, delivery, content)))
    except TemplateError as error:
        raise InvalidInputError(
            f"the delivery does not fit webhook {quote_name(webhook.workflow)}: {error}"
        ) from error


def _decode_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("body: expected text in UTF-8") from error


def _decode_json(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInputError(f"body: the value is not JSON: {error}") from error


def _parse_form(text: str) -> dict[str, Json]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
    except ValueError as error:
        raise InvalidInputError(f"body: a form has at most {FORM_FIELDS_MAX:,} fields") from error
    return _group_pairs(pairs)


def _group_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, Json]:
    grouped: dict[str, list[str]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in grouped.items()}
