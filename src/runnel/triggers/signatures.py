"""Who calls a webhook: shared secrets, and signatures as GitHub and Slack make them.

What is wrong is said in words that tell a forger nothing; comparing takes as long for any guess.
"""

import hashlib
import hmac

from runnel.errors import WebhookRefusedError
from runnel.triggers.deliveries import Delivery
from runnel.triggers.webhook import Webhook, WebhookKind

GITHUB_HEADER = "x-hub-signature-256"
SLACK_HEADER = "x-slack-signature"
SLACK_TIME_HEADER = "x-slack-request-timestamp"
# As Slack asks for: an older call may be one that somebody has recorded.
SLACK_TOLERANCE_S = 300.0
_TIME_CHARS_MAX = 12
_BEARER = "bearer "


def verify(webhook: Webhook, delivery: Delivery, now: float, secret: str | None) -> None:
    """Raises WebhookRefusedError unless whoever sent the body knows the secret.

    `secret` is the value; None, or nothing, fits no delivery.
    """
    if webhook.kind is WebhookKind.NONE:
        return
    if not secret:
        raise WebhookRefusedError("the server does not know the secret of this webhook")
    match webhook.kind:
        case WebhookKind.TOKEN:
            _check_token(delivery, webhook.header.lower(), secret)
        case WebhookKind.GITHUB:
            expected = _signature("sha256=", secret, delivery.body)
            _compare(delivery.header(GITHUB_HEADER), expected, "signature")
        case WebhookKind.SLACK:
            time = _slack_time(delivery, now)
            expected = _signature("v0=", secret, b"v0:" + time + b":" + delivery.body)
            _compare(delivery.header(SLACK_HEADER), expected, "signature")


def _check_token(delivery: Delivery, header: str, secret: str) -> None:
    found = delivery.header(header)
    if header == "authorization" and found.lower().startswith(_BEARER):
        found = found[len(_BEARER) :]
    _compare(found, secret.encode(), "token")


def _slack_time(delivery: Delivery, now: float) -> bytes:
    text = delivery.header(SLACK_TIME_HEADER)
    if not text.isascii() or not text.isdigit() or len(text) > _TIME_CHARS_MAX:
        raise WebhookRefusedError("the time of the request is missing, or none")
    if abs(now - int(text)) > SLACK_TOLERANCE_S:
        raise WebhookRefusedError("the request is too old, or the clocks are far apart")
    return text.encode()


def _signature(prefix: str, secret: str, data: bytes) -> bytes:
    return (prefix + hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()).encode()


def _compare(found: str, expected: bytes, what: str) -> None:
    if not found:
        raise WebhookRefusedError(f"the {what} is missing")
    if not hmac.compare_digest(_sent(found), expected):
        raise WebhookRefusedError(f"the {what} is wrong")


def _sent(header: str) -> bytes:
    """As bytes: servers hand headers on as Latin-1."""
    try:
        return header.encode("latin-1")
    except UnicodeEncodeError:
        return header.encode("utf-8", "surrogatepass")
