"""`runnel signal ID NAME`"""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.options import DataDir, ExecutionIdArgument, RedisUrl, Server, StoreLocation

if TYPE_CHECKING:
    from runnel.core.values import Json


def signal(
    execution_id: ExecutionIdArgument,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What the node waits for.", show_default=False)
    ],
    *,
    payload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON|KEY=VALUE",
            help="The output of the node that waits: JSON, or assignments (repeated).",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Send a signal to an execution, for instance an approval.

    One that comes before a node waits for it is kept.
    """
    import asyncio

    place = StoreLocation(data_dir, redis_url, server)
    asyncio.run(_send_signal(execution_id, name, read_payload(payload or []), place))
    return exits.OK


def read_payload(texts: list[str]) -> "Json":
    """One word of JSON, or assignments that make an object; raises InputError."""
    import msgspec

    from runnel.authoring.input_schema import parse_assignments
    from runnel.errors import InputError

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


async def _send_signal(text: str, name: str, payload: "Json", location: StoreLocation) -> None:
    from runnel.cli.options import configure
    from runnel.cli.session.hints import CommandHints
    from runnel.cli.session.open_client import find_execution_id, open_client
    from runnel.errors import InputError

    if not name.strip():
        raise InputError("expected the name of a signal, got an empty text")
    settings = configure(location)
    async with open_client(settings) as session:
        execution_id = await find_execution_id(session.client, text)
        is_owned = await session.find_owner(execution_id) is not None
        await session.client.signal(execution_id, name, payload)
    print(f"signal '{name}' sent to execution {execution_id}")
    if not is_owned:
        hint = CommandHints(location, settings.is_remote).resume(execution_id)
        print(f"no process runs it now; go on with: {hint}")
