"""`runnel webhook add|list|show|remove`"""

from typing import Annotated, TypeAlias

import typer

from runnel.cli import exits
from runnel.cli.completion import complete_workflow
from runnel.cli.groups import group
from runnel.cli.options import AsJson, DataDir, Place, RedisUrl, Server
from runnel.cli.run import Labels

app = group(
    "Webhooks: workflows that are run when another service calls.",
    begin="runnel webhook add report --kind github --secret github_hook",
)

Workflow: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW",
        help="A workflow, by its name.",
        autocompletion=complete_workflow,
        show_default=False,
    ),
]
OfKind: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="token|github|slack|none",
        help="How a caller proves who it is: by the secret in a header, by a signature, or not "
        "at all.",
    ),
]
Secret: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The name of the secret: NAME is RUNNEL_SECRET_NAME where the API runs.",
        show_default=False,
    ),
]
Header: TypeAlias = Annotated[
    str,
    typer.Option(metavar="NAME", help="The header that holds the secret, for kind token."),
]
Mapping: TypeAlias = Annotated[
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
DeliveryId: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TEMPLATE",
        help="What tells one call from the next: '{{ body.id }}'. The same again is the same "
        "execution.",
        show_default=False,
    ),
]
Version: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="This version of the workflow, instead of the newest.",
        show_default=False,
    ),
]
Replaces: TypeAlias = Annotated[
    bool, typer.Option("--replace", help="Instead of the webhook that it has.")
]


def add_webhook(
    workflow: Workflow,
    *,
    kind: OfKind = "token",
    secret: Secret = None,
    header: Header = "X-Webhook-Token",
    mapping: Mapping = None,
    delivery_id: DeliveryId = None,
    version: Version = None,
    labels: Labels = None,
    replaces: Replaces = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Let another service start a workflow: POST /v1/workflows/WORKFLOW/triggers/webhook.

    The value of the secret is not stored: it is set where 'runnel api' or 'runnel dev' runs.
    """
    import asyncio

    from runnel.cli.inputs import read_labels
    from runnel.cli.options import configure
    from runnel.cli.webhooks import add, made_of, print_added

    wanted = made_of(
        workflow,
        kind=kind,
        secret=secret,
        header=header,
        mapping=mapping or [],
        delivery_id=delivery_id,
        version=version,
        labels=read_labels(labels or []),
    )
    settings = configure(Place(data_dir, redis_url, server))
    print_added(asyncio.run(add(settings, wanted, replaces=replaces)), as_json=as_json)
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
    from runnel.cli.webhooks import load_page, print_page

    page = asyncio.run(load_page(configure(Place(data_dir, redis_url, server)), limit))
    print_page(page, limit, as_json=as_json)
    return exits.OK


def show_webhook(
    workflow: Workflow,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Show the webhook of a workflow."""
    import asyncio

    from runnel.cli.options import configure
    from runnel.cli.webhooks import load_one, print_one

    found = asyncio.run(load_one(configure(Place(data_dir, redis_url, server)), workflow))
    print_one(found, as_json=as_json)
    return exits.OK


def remove_webhook(
    workflow: Workflow,
    *,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Remove the webhook of a workflow for good; what it has started stays, and goes on."""
    import asyncio

    from runnel.cli.options import configure
    from runnel.cli.webhooks import remove

    asyncio.run(remove(configure(Place(data_dir, redis_url, server)), workflow))
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
