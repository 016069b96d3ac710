"""`runnel webhook add|list|show|remove`"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias
from urllib.parse import quote

import typer

from runnel.authoring.input_schema import parse_assignments
from runnel.cli.command_group import make_command_group
from runnel.cli.options import (
    AsJson,
    Labels,
    Limit,
    StoreLocation,
    WorkflowVersion,
    complete_workflow,
    configure,
    read_labels,
)
from runnel.cli.render.printer import (
    print_facts,
    print_json_lines,
    print_list,
    print_value_section,
)
from runnel.cli.render.text import Cell, format_labels, format_local_time
from runnel.cli.session.open_client import has_data, open_webhooks
from runnel.core.message_text import quote_name
from runnel.errors import InputError
from runnel.triggers.webhook import check_webhook
from runnel.views.trigger import Webhook, WebhookKind, WebhookView

WorkflowArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW", help="The name of a stored workflow.", autocompletion=complete_workflow
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookArguments:
    """A new webhook as the user typed it."""

    workflow: WorkflowArgument
    kind: Annotated[
        str,
        typer.Option(
            metavar="token|github|slack|none",
            help="How a caller is authenticated: by a secret in a header, by a signature, or not "
            "at all.",
        ),
    ] = "token"
    secret: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The name of the secret: the API reads its value from $RUNNEL_SECRET_<NAME>.",
        ),
    ] = None
    header: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The HTTP header that holds the secret of a webhook of kind token."
        ),
    ] = "X-Webhook-Token"
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            "-m",
            metavar="KEY=VALUE",
            help="Set one value of the workflow's input; repeatable: 'branch={{ body.ref }}'. "
            "Without this option, the input has the fields body, headers and query.",
        ),
    ] = None
    delivery_id: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE",
            help="A template for the id of a webhook call: '{{ body.id }}'. Calls with the same id "
            "start one execution.",
        ),
    ] = None
    version: WorkflowVersion = None
    labels: Labels = None

    def to_webhook(self) -> Webhook:
        """Returns the webhook that the user described; raises InputError."""
        labels = read_labels(self.labels or [])
        if self.kind not in list(WebhookKind):
            raise InputError(
                f"--kind: expected token, github, slack or none, got {quote_name(self.kind)}"
            )
        mapping = self.mapping
        webhook = Webhook(
            workflow=self.workflow,
            version=self.version,
            kind=WebhookKind(self.kind),
            secret=self.secret,
            header=self.header,
            mapping=parse_assignments(mapping, subject="--map") if mapping else None,
            delivery_id=self.delivery_id,
            labels=labels,
        )
        check_webhook(webhook)
        return webhook


async def add_webhook(
    *,
    arguments: WebhookArguments,
    replaces: Annotated[
        bool, typer.Option("--replace", help="Replace the webhook that the workflow has already.")
    ] = False,
    as_json: AsJson = False,
    location: StoreLocation,
) -> None:
    """Add a webhook, so that another service can start a workflow.

    The service calls POST /v1/workflows/WORKFLOW/triggers/webhook.

    The value of the secret is not stored: set it where 'runnel api' or 'runnel dev' runs.
    """
    webhook = arguments.to_webhook()
    async with open_webhooks(configure(location)) as webhooks:
        view = await webhooks.add(webhook, replaces=replaces)
    if as_json:
        print_json_lines([view])
        return
    print(f"workflow '{view.workflow}' is started by: POST {_format_path(view)}")
    if view.secret is None:
        print("the webhook has no secret: anyone who can reach the server can start the workflow")
    else:
        variable = f"RUNNEL_SECRET_{view.secret.upper()}"
        print(f"set the secret in {variable} where 'runnel api' or 'runnel dev' runs")


async def list_webhooks(
    *, limit: Limit = 50, as_json: AsJson = False, location: StoreLocation
) -> None:
    """List all webhooks by workflow."""
    settings = configure(location)
    views: Sequence[WebhookView] = ()
    if has_data(settings):
        async with open_webhooks(settings) as webhooks:
            views = await webhooks.list(limit=limit)
    print_list(
        views,
        ["WORKFLOW", "KIND", "SECRET", "ADDED", "PATH"],
        _build_row,
        as_json=as_json,
        empty="no webhooks; make one with: runnel webhook add WORKFLOW --kind github --secret NAME",
        limit=limit,
    )


async def show_webhook(
    workflow: WorkflowArgument, *, as_json: AsJson = False, location: StoreLocation
) -> None:
    """Show the webhook of a workflow."""
    async with open_webhooks(configure(location)) as webhooks:
        view = await webhooks.get(workflow)
    if as_json:
        print_json_lines([view])
        return
    print_facts([Cell(view.workflow, "bold")], _list_facts(view))
    print_value_section("input", view.mapping)


async def remove_webhook(workflow: WorkflowArgument, *, location: StoreLocation) -> None:
    """Remove the webhook of a workflow for good; executions that the webhook started continue."""
    async with open_webhooks(configure(location)) as webhooks:
        await webhooks.remove(workflow)
    print(f"the webhook of workflow '{workflow}' is removed")


app = make_command_group(
    "Run workflows when another service calls a webhook.",
    first_command="runnel webhook add report --kind github --secret github_hook",
    commands={
        "add": (
            add_webhook,
            "runnel webhook add report --kind github --secret hook -m 'branch={{ body.ref }}'",
        ),
        "list": (list_webhooks, "runnel webhook list"),
        "show": (show_webhook, "runnel webhook show report"),
        "remove": (remove_webhook, "runnel webhook remove report"),
    },
)


def _build_row(view: WebhookView) -> list[Cell]:
    return [
        Cell(view.workflow, "bold"),
        Cell(view.kind.value),
        Cell(view.secret or "-"),
        Cell(format_local_time(view.created_at), "dim"),
        Cell(_format_path(view), "dim"),
    ]


def _list_facts(view: WebhookView) -> Iterator[tuple[str, str]]:
    is_token = view.kind is WebhookKind.TOKEN
    yield "path", f"POST {_format_path(view)}"
    yield "version", "" if view.version is None else str(view.version)
    yield "kind", view.kind.value + (f", in {view.header}" if is_token else "")
    yield "secret", view.secret or ""
    yield "delivery", view.delivery_id or ""
    yield "labels", format_labels(view.labels)
    yield "added", format_local_time(view.created_at)


def _format_path(view: WebhookView) -> str:
    return f"/v1/workflows/{quote(view.workflow, safe='')}/triggers/webhook"
