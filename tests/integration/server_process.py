"""A process that starts a private server and waits: `redis` or `postgres`, `paused` or `running`.

It prints the pids of the processes and the folder of the server.
"""

import sys

from runnel.app.private_servers.guardian import list_children
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer


def main(kind: str, state: str) -> None:
    server = RedisServer() if kind == "redis" else PostgresServer()
    with server:
        pid = server.pid or 0
        pids = [pid, *list_children(pid)]
        if state == "paused":
            server.pause()
        say(" ".join(str(pid) for pid in pids))
        say(str(server.folder))
        sys.stdin.read()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
