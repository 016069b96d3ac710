"""Webhooks for the commands: made from what was typed, loaded, and shown."""

from collections.abc import Sequence
from urllib.parse import quote

from runnel.authoring.inputs import parse_assignments
from runnel.cli.opening import has_data, keeping_webhooks
from runnel.cli.tables import Cell, print_styled, print_table
from runnel.cli.words import compact, local_time, pretty, shown_labels
from runnel.core.checks.wording import quoted
from runnel.errors import InputError
from runnel.settings import Settings
from runnel.triggers.documents import webhook_document
from runnel.triggers.webhook import Webhook, WebhookKind, check_webhook


def made_of(
    workflow: str,
    *,
    kind: str,
    secret: str | None,
    header: str,
    mapping: Sequence[str],
    delivery_id: str | None,
    version: int | None,
    labels: dict[str, str],
) -> Webhook:
    """Raises InputError."""
    if kind not in list(WebhookKind):
        raise InputError(f"--kind: expected token, github, slack or none, got {quoted(kind)}")
    webhook = Webhook(
        workflow=workflow,
        version=version,
        kind=WebhookKind(kind),
        secret=secret,
        header=header,
        mapping=parse_assignments(mapping, what="--map") if mapping else None,
        delivery_id=delivery_id,
        labels=labels,
    )
    check_webhook(webhook)
    return webhook


async def add(settings: Settings, webhook: Webhook, *, replaces: bool) -> Webhook:
    async with keeping_webhooks(settings) as webhooks:
        return await webhooks.add(webhook, replaces=replaces)


async def load_page(settings: Settings, limit: int) -> Sequence[Webhook]:
    """Nothing where nothing was ever run."""
    if not has_data(settings):
        return ()
    async with keeping_webhooks(settings) as webhooks:
        return await webhooks.list(limit=limit)


async def load_one(settings: Settings, workflow: str) -> Webhook:
    async with keeping_webhooks(settings) as webhooks:
        return await webhooks.get(workflow)


async def remove(settings: Settings, workflow: str) -> None:
    async with keeping_webhooks(settings) as webhooks:
        await webhooks.remove(workflow)


def print_added(webhook: Webhook, *, as_json: bool) -> None:
    if as_json:
        print(compact(webhook_document(webhook)))
        return
    print(f"workflow '{webhook.workflow}' is started by: POST {_path(webhook)}")
    if webhook.secret is None:
        print("by anybody who can reach the server: it has no secret")
    else:
        variable = f"RUNNEL_SECRET_{webhook.secret.upper()}"
        print(f"its secret is {variable}, where 'runnel api' or 'runnel dev' runs")


def print_page(page: Sequence[Webhook], limit: int, *, as_json: bool) -> None:
    if as_json:
        for webhook in page:
            print(compact(webhook_document(webhook)))
        return
    if not page:
        print("no webhooks; make one with: runnel webhook add WORKFLOW --kind github --secret NAME")
        return
    rows = [
        [
            Cell(webhook.workflow, "bold"),
            Cell(webhook.kind.value),
            Cell(webhook.secret or "-"),
            Cell(local_time(webhook.created_at), "dim"),
            Cell(_path(webhook), "dim"),
        ]
        for webhook in page
    ]
    print_table(["WORKFLOW", "KIND", "SECRET", "ADDED", "PATH"], rows)
    if len(page) == limit:
        print(f"(the first {limit}; --limit shows more)")


def print_one(webhook: Webhook, *, as_json: bool) -> None:
    if as_json:
        print(compact(webhook_document(webhook)))
        return
    print_styled([Cell(webhook.workflow, "bold")])
    for name, text in _facts(webhook):
        print_styled([Cell(f"  {name:<10}", "dim"), Cell(text)])
    if webhook.mapping is not None:
        print_styled([Cell("\ninput", "dim")])
        print(pretty(webhook.mapping))


def _facts(webhook: Webhook) -> list[tuple[str, str]]:
    is_token = webhook.kind is WebhookKind.TOKEN
    facts = [
        ("path", f"POST {_path(webhook)}"),
        ("version", "" if webhook.version is None else str(webhook.version)),
        ("kind", webhook.kind.value + (f", in {webhook.header}" if is_token else "")),
        ("secret", webhook.secret or ""),
        ("delivery", webhook.delivery_id or ""),
        ("labels", shown_labels(webhook.labels)),
        ("added", local_time(webhook.created_at)),
    ]
    return [(name, text) for name, text in facts if text]


def _path(webhook: Webhook) -> str:
    return f"/v1/workflows/{quote(webhook.workflow, safe='')}/triggers/webhook"
