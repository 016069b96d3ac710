"""`runnel signal ID NAME`"""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.options import DataDir, Id, Place, RedisUrl, Server

if TYPE_CHECKING:
    from runnel.core.values import Json


def signal(
    execution_id: Id,
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

    place = Place(data_dir, redis_url, server)
    asyncio.run(_send(execution_id, name, read_payload(payload or []), place))
    return exits.OK


def read_payload(words: list[str]) -> "Json":
    """One word of JSON, or assignments that make an object; raises InputError."""
    import msgspec

    from runnel.authoring.input_schema import parse_assignments
    from runnel.errors import InputError

    if not words:
        return None
    if len(words) == 1:
        try:
            return msgspec.json.decode(words[0])
        except msgspec.DecodeError as error:
            if "=" not in words[0]:
                raise InputError(
                    f"--payload: expected JSON or KEY=VALUE, got '{words[0]}'"
                ) from error
    return parse_assignments(words)


async def _send(text: str, name: str, payload: "Json", place: Place) -> None:
    from runnel.cli.options import configure
    from runnel.cli.session.hints import Hints
    from runnel.cli.session.open_client import find, looking
    from runnel.errors import InputError

    if not name.strip():
        raise InputError("expected the name of a signal, got an empty text")
    settings = configure(place)
    async with looking(settings) as look:
        execution_id = await find(look, text)
        is_owned = await look.owner_of(execution_id) is not None
        await look.client.signal(execution_id, name, payload)
    print(f"signal '{name}' sent to execution {execution_id}")
    if not is_owned:
        hint = Hints(place, settings.is_remote).revive(execution_id)
        print(f"no process runs it now; go on with: {hint}")
