"""Authentication of webhooks: shared secrets, and signatures of GitHub and Slack."""

import pytest

from runnel.errors import WebhookRefusedError
from runnel.triggers.webhook_delivery import Delivery
from runnel.triggers.webhook_signatures import verify_delivery
from runnel.views.trigger import Webhook, WebhookKind

K = WebhookKind
# Examples from the documentation of GitHub and Slack.
GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB_BODY = b"Hello, World!"
GITHUB_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_TIME = 1531420618
SLACK_SIGNATURE = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


def webhook(kind: WebhookKind, header: str = "X-Webhook-Token") -> Webhook:
    return Webhook(workflow="w", kind=kind, secret="s", header=header)


def call(body: bytes, **headers: str) -> Delivery:
    return Delivery.from_pairs(
        [(name.replace("_", "-"), text) for name, text in headers.items()], [], body
    )


def slack(
    body: bytes = SLACK_BODY, time: str = str(SLACK_TIME), signature: str = SLACK_SIGNATURE
) -> Delivery:
    return call(body, X_Slack_Request_Timestamp=time, X_Slack_Signature=signature)


@pytest.mark.parametrize(
    ("kind", "delivery", "secret", "header"),
    [
        (K.NONE, call(b"x"), None, ""),
        (K.TOKEN, call(b"x", X_Webhook_Token="hush-hush"), "hush-hush", "X-Webhook-Token"),
        (K.TOKEN, call(b"x", x_gitlab_token=" hush-hush "), "hush-hush", "X-Gitlab-Token"),
        (K.TOKEN, call(b"x", Authorization="Bearer hush"), "hush", "Authorization"),
        (K.TOKEN, call(b"x", Authorization="hush"), "hush", "authorization"),
        (K.TOKEN, call(b"x", t="grün".encode().decode("latin-1")), "grün", "t"),
        (K.GITHUB, call(GITHUB_BODY, X_Hub_Signature_256=GITHUB_SIGNATURE), GITHUB_SECRET, ""),
        (K.SLACK, slack(), SLACK_SECRET, ""),
    ],
    ids=lambda value: value.value if isinstance(value, WebhookKind) else "",
)
def test_a_delivery_with_the_right_credential_is_accepted(
    kind: WebhookKind, delivery: Delivery, secret: str | None, header: str
) -> None:
    verify_delivery(webhook(kind, header), delivery, SLACK_TIME + 299.0, secret)

    assert kind is K.NONE or secret


REFUSED = [
    (K.TOKEN, call(b"x"), "hush-hush", "the token is missing"),
    (K.TOKEN, call(b"x", X_Webhook_Token="hush"), "hush-hush", "the token is wrong"),
    (K.TOKEN, call(b"x", X_Webhook_Token="Hush-hush"), "hush-hush", "the token is wrong"),
    (K.TOKEN, call(b"x", X_Webhook_Token="Bearer hush-hush"), "hush-hush", "the token is wrong"),
    (K.TOKEN, call(b"x", X_Webhook_Token="日本"), "??", "the token is wrong"),
    (K.TOKEN, call(b"x", X_Webhook_Token="a"), None, "the server does not know the secret"),
    (K.TOKEN, call(b"x", X_Webhook_Token=""), "", "the server does not know the secret"),
    (K.GITHUB, call(GITHUB_BODY), GITHUB_SECRET, "the signature is missing"),
    (
        K.GITHUB,
        call(GITHUB_BODY + b" ", X_Hub_Signature_256=GITHUB_SIGNATURE),
        GITHUB_SECRET,
        "the signature is wrong",
    ),
    (
        K.GITHUB,
        call(GITHUB_BODY, X_Hub_Signature_256=GITHUB_SIGNATURE.removeprefix("sha256=")),
        GITHUB_SECRET,
        "the signature is wrong",
    ),
    (
        K.GITHUB,
        call(GITHUB_BODY, X_Hub_Signature=GITHUB_SIGNATURE),
        GITHUB_SECRET,
        "the signature is missing",
    ),
    (
        K.GITHUB,
        call(GITHUB_BODY, X_Hub_Signature_256=GITHUB_SIGNATURE),
        "another secret",
        "the signature is wrong",
    ),
    (K.SLACK, slack(time=""), SLACK_SECRET, "the time of the request is missing or invalid"),
    (K.SLACK, slack(time="soon"), SLACK_SECRET, "the time of the request is missing or invalid"),
    (K.SLACK, slack(time="-1531420618"), SLACK_SECRET, "missing or invalid"),
    (K.SLACK, slack(time="١٥٣١٤٢٠٦١٨"), SLACK_SECRET, "missing or invalid"),
    (K.SLACK, slack(time="9" * 5_000), SLACK_SECRET, "missing or invalid"),
    (K.SLACK, slack(time="1531420619"), SLACK_SECRET, "the signature is wrong"),
    (K.SLACK, slack(time="1531420017"), SLACK_SECRET, "the request is too old"),
    (K.SLACK, slack(time="1531421300"), SLACK_SECRET, "the request is too old"),
    (K.SLACK, slack(body=SLACK_BODY + b"&a=b"), SLACK_SECRET, "the signature is wrong"),
    (K.SLACK, slack(signature=""), SLACK_SECRET, "the signature is missing"),
    (K.SLACK, slack(), "another secret", "the signature is wrong"),
]


@pytest.mark.parametrize(("kind", "delivery", "secret", "message"), REFUSED)
def test_a_delivery_without_the_right_credential_is_refused(
    kind: WebhookKind, delivery: Delivery, secret: str | None, message: str
) -> None:
    with pytest.raises(WebhookRefusedError, match=message):
        verify_delivery(webhook(kind), delivery, SLACK_TIME, secret)


def test_a_replayed_slack_request_is_refused_after_five_minutes() -> None:
    with pytest.raises(WebhookRefusedError, match="too old"):
        verify_delivery(webhook(K.SLACK), slack(), SLACK_TIME + 300.5, SLACK_SECRET)


def test_a_repeated_signature_header_is_refused() -> None:
    twice = [("X-Hub-Signature-256", GITHUB_SIGNATURE)] * 2

    with pytest.raises(WebhookRefusedError, match="wrong"):
        verify_delivery(
            webhook(K.GITHUB), Delivery.from_pairs(twice, [], GITHUB_BODY), 0.0, GITHUB_SECRET
        )
