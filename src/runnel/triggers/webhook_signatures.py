"""Authenticates the callers of webhooks by a token, or by the signature of GitHub or Slack.

Error messages give no hints to an attacker, and comparisons take constant time.
"""

import hashlib
import hmac

from runnel.errors import WebhookRefusedError
from runnel.triggers.webhook_delivery import Delivery
from runnel.views.trigger import Webhook, WebhookKind

GITHUB_SIGNATURE_HEADER = "x-hub-signature-256"
SLACK_SIGNATURE_HEADER = "x-slack-signature"
SLACK_TIME_HEADER = "x-slack-request-timestamp"
# Slack recommends this limit: an older request may be a replay.
SLACK_TOLERANCE_S = 300.0
_TIME_CHARS_MAX = 12
_BEARER = "bearer "


def verify_delivery(webhook: Webhook, delivery: Delivery, now: float, secret: str | None) -> None:
    """Raises WebhookRefusedError unless the delivery proves knowledge of the secret.

    `secret` is the value of the secret. If the value is None or empty, every delivery is refused.
    """
    if webhook.kind is WebhookKind.NONE:
        return
    if not secret:
        raise WebhookRefusedError("the server does not know the secret of this webhook")
    match webhook.kind:
        case WebhookKind.TOKEN:
            _check_token(delivery, webhook.header.lower(), secret)
        case WebhookKind.GITHUB:
            expected = _compute_signature("sha256=", secret, delivery.body)
            _check_credential(delivery.get_header(GITHUB_SIGNATURE_HEADER), expected, "signature")
        case WebhookKind.SLACK:
            time = _check_slack_time(delivery, now)
            expected = _compute_signature("v0=", secret, b"v0:" + time + b":" + delivery.body)
            _check_credential(delivery.get_header(SLACK_SIGNATURE_HEADER), expected, "signature")


def _check_token(delivery: Delivery, header: str, secret: str) -> None:
    token = delivery.get_header(header)
    if header == "authorization" and token.lower().startswith(_BEARER):
        token = token[len(_BEARER) :]
    _check_credential(token, secret.encode(), "token")


def _check_slack_time(delivery: Delivery, now: float) -> bytes:
    text = delivery.get_header(SLACK_TIME_HEADER)
    if not text.isascii() or not text.isdigit() or len(text) > _TIME_CHARS_MAX:
        raise WebhookRefusedError("the time of the request is missing or invalid")
    if abs(now - int(text)) > SLACK_TOLERANCE_S:
        raise WebhookRefusedError("the request is too old, or the clocks are far apart")
    return text.encode()


def _compute_signature(prefix: str, secret: str, data: bytes) -> bytes:
    return (prefix + hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()).encode()


def _check_credential(credential: str, expected: bytes, subject: str) -> None:
    if not credential:
        raise WebhookRefusedError(f"the {subject} is missing")
    if not hmac.compare_digest(_encode_header(credential), expected):
        raise WebhookRefusedError(f"the {subject} is wrong")


def _encode_header(header: str) -> bytes:
    """Returns the bytes of a header; servers decode headers as Latin-1."""
    try:
        return header.encode("latin-1")
    except UnicodeEncodeError:
        return header.encode("utf-8", "surrogatepass")
