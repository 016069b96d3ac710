"""`runnel signal ID NAME` and `runnel trigger ID`"""

from typing import Annotated

import msgspec
import typer

from runnel.authoring.input_schema import parse_assignments
from runnel.cli.options import (
    Assignments,
    ExecutionIdArgument,
    InputFile,
    StoreLocation,
    configure,
)
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import read_input
from runnel.cli.session.open_client import find_execution_id, load_workflow, open_client
from runnel.core.values import Json
from runnel.errors import InputError


async def signal(
    execution_id: ExecutionIdArgument,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The name of the signal that a node waits for."),
    ],
    *,
    payload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON|KEY=VALUE",
            help="The data of the signal, which become the output of the waiting node: JSON, or "
            "assignments (repeatable).",
        ),
    ] = None,
    location: StoreLocation,
) -> None:
    """Send a signal to an execution, for example an approval.

    A signal that arrives before a node waits for it is stored until then.
    """
    value = read_payload(payload or [])
    if not name.strip():
        raise InputError("expected the name of a signal, got an empty text")
    settings = configure(location)
    async with open_client(settings) as session:
        full_id = await find_execution_id(session.client, execution_id)
        is_owned = await session.find_owner(full_id) is not None
        await session.client.signal(full_id, name, value)
    print(f"signal '{name}' sent to execution {full_id}")
    if not is_owned:
        hint = CommandHints(location, settings.is_remote).resume(full_id)
        print(f"no process runs this execution now; continue with: {hint}")


async def trigger(
    execution_id: ExecutionIdArgument,
    *,
    assignments: Assignments = None,
    input_file: InputFile = None,
    location: StoreLocation,
) -> None:
    """Start a held execution, which was stored without starting it.

    Held executions are stored by [bold]runnel run --hold[/bold], [bold]client.hold[/bold] and
    [bold]POST /v1/workflow[/bold].
    """
    settings = configure(location)
    async with open_client(settings) as session:
        full_id = await find_execution_id(session.client, execution_id)
        value: Json = None
        if input_file is not None or assignments:
            workflow = await load_workflow(session.client, full_id)
            value = read_input(input_file, assignments or [], workflow.input)
        is_owned = await session.find_owner(full_id) is not None
        await session.client.trigger(full_id, value)
    print(f"triggered: {full_id}")
    if not is_owned:
        hint = CommandHints(location, settings.is_remote).resume(full_id)
        print(f"no process runs this execution now; continue with: {hint}")


def read_payload(texts: list[str]) -> Json:
    """Returns the JSON value of one text, or the object of all assignments; raises InputError."""
    if not texts:
        return None
    if len(texts) == 1:
        try:
            return msgspec.json.decode(texts[0])
        except msgspec.DecodeError as error:
            if "=" not in texts[0]:
                raise InputError(
                    f"--payload: expected JSON or KEY=VALUE, got '{texts[0]}'"
                ) from error
    return parse_assignments(texts)
