"""Bytes that came after an answer and belong to none: nobody can tell whose the next ones are.

On a connection that is used again, they would be read as the answer to the next request, which may
be another workflow's. httpcore keeps them for it.
"""

import httpcore


async def hang_up_if_more(answer: httpcore.Response) -> None:
    """To be called when an answer has been read, before it is closed."""
    if _has_more(answer):
        await answer.extensions["network_stream"].aclose()


def _has_more(answer: httpcore.Response) -> bool:
    """True as well if a later httpcore keeps its parser elsewhere: slow, but safe."""
    connection = getattr(getattr(answer.stream, "_stream", None), "_connection", None)
    parser = getattr(connection, "_h11_state", None)
    return parser is None or bool(parser.trailing_data[0])
