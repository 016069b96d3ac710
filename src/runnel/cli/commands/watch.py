"""`runnel watch ID`"""

from runnel.cli.options import AsJsonResult, ExecutionIdArgument, StoreLocation, configure
from runnel.cli.session.follow import follow_until_final
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import find_execution_id, load_workflow, open_client
from runnel.cli.session.unfinished import PROGRAM_ONLY_MESSAGE, is_bound_to_program
from runnel.cli.streams import reserve_stdout
from runnel.core.states import FINAL_EXECUTION_STATES


async def watch(
    execution_id: ExecutionIdArgument, *, as_json: AsJsonResult = False, location: StoreLocation
) -> int:
    """Follow an execution until it is final.

    The exit code is the same as of [bold]runnel run[/bold]. Ctrl-C ends this command; the execution
    continues.
    """
    settings = configure(location)
    hints = CommandHints(location, settings.is_remote)
    with reserve_stdout() as out:
        async with open_client(settings) as session:
            full_id = await find_execution_id(session.client, execution_id)
            summary = (await session.client.summaries([full_id]))[full_id]
            is_owned = await session.find_owner(full_id) is not None
            message = ""
            if not is_owned and summary.status not in FINAL_EXECUTION_STATES:
                message = (
                    f"no process runs this execution now; continue with: {hints.resume(full_id)}"
                )
                if is_bound_to_program(await load_workflow(session.client, full_id)):
                    remedy = f"end it with: {hints.force_cancel(full_id)}"
                    message = (
                        f"no process runs this execution now; {PROGRAM_ONLY_MESSAGE}; {remedy}"
                    )
            return await follow_until_final(
                session, full_id, hints, first_message=message, out=out, as_json=as_json
            )
