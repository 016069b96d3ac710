"""`runnel orchestrator`"""

from runnel.cli.options import Place, ServerUrl


def orchestrator(*, redis_url: ServerUrl = None) -> int:
    """Decide what runs next, for executions on a Redis server.

    Any number of them share the work, and take over from one that dies.

    SIGTERM or Ctrl-C ends it in good order, a second one at once. It logs to stderr.
    """
    import asyncio

    from runnel.cli.options import configure_server
    from runnel.cli.serving import orchestrating, serve

    settings = configure_server(Place(redis_url=redis_url))
    return asyncio.run(serve(settings, "orchestrator", orchestrating, decides=True))
