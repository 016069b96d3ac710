"""`runnel webhook add|list|show|remove`"""

from collections.abc import Sequence
from typing import Annotated, TypeAlias
from urllib.parse import quote

import typer

from runnel.authoring.input_schema import parse_assignments
from runnel.cli import errors as exits
from runnel.cli.command_group import make_command_group
from runnel.cli.commands.run import Labels
from runnel.cli.options import AsJson, DataDir, RedisUrl, Server, StoreLocation, complete_workflow
from runnel.cli.render.text import (
    Cell,
    format_labels,
    format_local_time,
    print_styled,
    print_table,
    to_compact_json,
    to_pretty_json,
)
from runnel.cli.session.open_client import has_data, open_webhooks
from runnel.core.wording import quote_name
from runnel.errors import InputError
from runnel.settings.model import Settings
from runnel.triggers.webhook import check_webhook
from runnel.views import build_document
from runnel.views.trigger import Webhook, WebhookKind, WebhookView

app = make_command_group(
    "Webhooks: workflows that are run when another service calls.",
    first_command="runnel webhook add report --kind github --secret github_hook",
)

WorkflowArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW",
        help="A workflow, by its name.",
        autocompletion=complete_workflow,
        show_default=False,
    ),
]
KindOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="token|github|slack|none",
        help="How a caller proves who it is: by the secret in a header, by a signature, or not "
        "at all.",
    ),
]
SecretOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The name of the secret: NAME is RUNNEL_SECRET_NAME where the API runs.",
        show_default=False,
    ),
]
HeaderOption: TypeAlias = Annotated[
    str,
    typer.Option(metavar="NAME", help="The header that holds the secret, for kind token."),
]
MappingOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        "-m",
        metavar="KEY=VALUE",
        help="A value of the input (repeated): 'branch={{ body.ref }}'. Without any, the input "
        "is body, headers and query.",
        show_default=False,
    ),
]
DeliveryIdOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TEMPLATE",
        help="What tells one call from the next: '{{ body.id }}'. The same again is the same "
        "execution.",
        show_default=False,
    ),
]
VersionOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="This version of the workflow, instead of the newest.",
        show_default=False,
    ),
]
ReplaceOption: TypeAlias = Annotated[
    bool, typer.Option("--replace", help="Instead of the webhook that it has.")
]


def add_webhook(
    workflow: WorkflowArgument,
    *,
    kind: KindOption = "token",
    secret: SecretOption = None,
    header: HeaderOption = "X-Webhook-Token",
    mapping: MappingOption = None,
    delivery_id: DeliveryIdOption = None,
    version: VersionOption = None,
    labels: Labels = None,
    replaces: ReplaceOption = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Let another service start a workflow: POST /v1/workflows/WORKFLOW/triggers/webhook.

    The value of the secret is not stored: it is set where 'runnel api' or 'runnel dev' runs.
    """
    import asyncio

    from runnel.cli.options import configure, read_labels

    wanted = build_webhook(
        workflow,
        kind=kind,
        secret=secret,
        header=header,
        mapping=mapping or [],
        delivery_id=delivery_id,
        version=version,
        labels=read_labels(labels or []),
    )
    settings = configure(StoreLocation(data_dir, redis_url, server))
    print_added(asyncio.run(store_webhook(settings, wanted, replaces=replaces)), as_json=as_json)
    return exits.OK


def list_webhooks(
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """List all webhooks, by workflow."""
    import asyncio

    from runnel.cli.options import configure

    page = asyncio.run(load_page(configure(StoreLocation(data_dir, redis_url, server)), limit))
    print_page(page, limit, as_json=as_json)
    return exits.OK


def show_webhook(
    workflow: WorkflowArgument,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Show the webhook of a workflow."""
    import asyncio

    from runnel.cli.options import configure

    found = asyncio.run(
        load_webhook(configure(StoreLocation(data_dir, redis_url, server)), workflow)
    )
    print_webhook(found, as_json=as_json)
    return exits.OK


def remove_webhook(
    workflow: WorkflowArgument,
    *,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Remove the webhook of a workflow for good; what it has started stays, and goes on."""
    import asyncio

    from runnel.cli.options import configure

    asyncio.run(delete_webhook(configure(StoreLocation(data_dir, redis_url, server)), workflow))
    print(f"the webhook of workflow '{workflow}' is removed")
    return exits.OK


for _command, _example in (
    (
        add_webhook,
        "runnel webhook add report --kind github --secret hook -m 'branch={{ body.ref }}'",
    ),
    (list_webhooks, "runnel webhook list"),
    (show_webhook, "runnel webhook show report"),
    (remove_webhook, "runnel webhook remove report"),
):
    app.command(
        _command.__name__.partition("_")[0],
        epilog=f"Example:  [bold]{_example}[/bold]",
    )(_command)


# Webhooks for the commands: made from what was typed, loaded, and shown.


def build_webhook(
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
        raise InputError(f"--kind: expected token, github, slack or none, got {quote_name(kind)}")
    webhook = Webhook(
        workflow=workflow,
        version=version,
        kind=WebhookKind(kind),
        secret=secret,
        header=header,
        mapping=parse_assignments(mapping, subject="--map") if mapping else None,
        delivery_id=delivery_id,
        labels=labels,
    )
    check_webhook(webhook)
    return webhook


async def store_webhook(settings: Settings, webhook: Webhook, *, replaces: bool) -> WebhookView:
    async with open_webhooks(settings) as webhooks:
        return await webhooks.add(webhook, replaces=replaces)


async def load_page(settings: Settings, limit: int) -> Sequence[WebhookView]:
    """Nothing where nothing was ever run."""
    if not has_data(settings):
        return ()
    async with open_webhooks(settings) as webhooks:
        return await webhooks.list(limit=limit)


async def load_webhook(settings: Settings, workflow: str) -> WebhookView:
    async with open_webhooks(settings) as webhooks:
        return await webhooks.get(workflow)


async def delete_webhook(settings: Settings, workflow: str) -> None:
    async with open_webhooks(settings) as webhooks:
        await webhooks.remove(workflow)


def print_added(webhook: WebhookView, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(webhook)))
        return
    print(f"workflow '{webhook.workflow}' is started by: POST {_format_path(webhook)}")
    if webhook.secret is None:
        print("by anybody who can reach the server: it has no secret")
    else:
        variable = f"RUNNEL_SECRET_{webhook.secret.upper()}"
        print(f"its secret is {variable}, where 'runnel api' or 'runnel dev' runs")


def print_page(page: Sequence[WebhookView], limit: int, *, as_json: bool) -> None:
    if as_json:
        for webhook in page:
            print(to_compact_json(build_document(webhook)))
        return
    if not page:
        print("no webhooks; make one with: runnel webhook add WORKFLOW --kind github --secret NAME")
        return
    rows = [
        [
            Cell(webhook.workflow, "bold"),
            Cell(webhook.kind.value),
            Cell(webhook.secret or "-"),
            Cell(format_local_time(webhook.created_at), "dim"),
            Cell(_format_path(webhook), "dim"),
        ]
        for webhook in page
    ]
    print_table(["WORKFLOW", "KIND", "SECRET", "ADDED", "PATH"], rows)
    if len(page) == limit:
        print(f"(the first {limit}; --limit shows more)")


def print_webhook(webhook: WebhookView, *, as_json: bool) -> None:
    if as_json:
        print(to_compact_json(build_document(webhook)))
        return
    print_styled([Cell(webhook.workflow, "bold")])
    for name, text in _list_facts(webhook):
        print_styled([Cell(f"  {name:<10}", "dim"), Cell(text)])
    if webhook.mapping is not None:
        print_styled([Cell("\ninput", "dim")])
        print(to_pretty_json(webhook.mapping))


def _list_facts(webhook: WebhookView) -> list[tuple[str, str]]:
    is_token = webhook.kind is WebhookKind.TOKEN
    facts = [
        ("path", f"POST {_format_path(webhook)}"),
        ("version", "" if webhook.version is None else str(webhook.version)),
        ("kind", webhook.kind.value + (f", in {webhook.header}" if is_token else "")),
        ("secret", webhook.secret or ""),
        ("delivery", webhook.delivery_id or ""),
        ("labels", format_labels(webhook.labels)),
        ("added", format_local_time(webhook.created_at)),
    ]
    return [(name, text) for name, text in facts if text]


def _format_path(webhook: WebhookView) -> str:
    return f"/v1/workflows/{quote(webhook.workflow, safe='')}/triggers/webhook"
