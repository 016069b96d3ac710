"""Schedules and webhooks as users write them."""

import pytest

from runnel import Schedule, Webhook, WebhookKind
from runnel.errors import InputError
from runnel.triggers.webhook import check_webhook
from runnel.views.trigger import Overlap


def test_a_kind_may_be_text() -> None:
    webhook = Webhook(workflow="w", kind="token", secret="s")  # type: ignore[arg-type]  # as users write it

    check_webhook(webhook)

    assert webhook.kind is WebhookKind.TOKEN
    assert webhook == Webhook(workflow="w", kind=WebhookKind.TOKEN, secret="s")


def test_an_overlap_may_be_text() -> None:
    assert Schedule(id="s", workflow="w", overlap="skip").overlap is Overlap.SKIP  # type: ignore[arg-type]  # as users write it


@pytest.mark.parametrize("kind", ["tokn", 3, None])
def test_an_unknown_kind_is_refused_with_the_kinds(kind: object) -> None:
    with pytest.raises(InputError, match="Webhook: kind: expected one of none, token, github, sl"):
        Webhook(workflow="w", kind=kind)  # type: ignore[arg-type]  # wrong on purpose
