"""Becomes a server, and leaves somebody behind who ends it when its starter dies, however it dies.

Run by its path: `python -I -S guardian.py FOLDER USER COMMAND…`. Standard input is the lifeline, a
pipe whose other end only the starter holds: the kernel closes it, even after a kill -9. Parents'
death signals are not used: Linux only, and they come when the *thread* that started the child ends.

Imports nothing of Runnel, and little else: it takes 15 ms of each start of a server.
"""

import os
import pwd
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def main(folder: str, user: str, command: list[str]) -> None:
    lifeline = os.dup(0)
    if os.fork() == 0:
        # Twice: a server must not find a child that it has not started.
        if os.fork() == 0:
            _guard(lifeline, server=os.getsid(0), folder=folder)
        os._exit(0)
    os.wait()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    if user:
        _switch_user(user)
    os.execv(command[0], command)  # noqa: S606  # the command is the server's, and needs no shell


def remove_folder(folder: str | Path) -> None:
    """A dying process may add a file to a folder that is being removed: then once more."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def kill_process_tree(pid: int) -> None:
    """A server's children go too, paused or not: those of PostgreSQL only notice when they run."""
    for process_id in suspend_process_tree(pid):
        _send_signal(process_id, signal.SIGKILL)


def suspend_process_tree(pid: int) -> list[int]:
    """A process and its children, all stopped: the parent first, so that no child is missed."""
    _send_signal(pid, signal.SIGSTOP)
    children = list_children(pid)
    for child in children:
        _send_signal(child, signal.SIGSTOP)
    return [pid, *children]


def list_children(pid: int) -> list[int]:
    pairs = (
        _read_parents_from_proc() if (PROC / "self" / "stat").exists() else _read_parents_from_ps()
    )
    return [child for child, parent in pairs if parent == pid]


def _guard(lifeline: int, *, server: int, folder: str) -> None:
    os.setsid()
    for fd in (0, 1, 2):
        os.close(fd)
    if os.read(lifeline, 1):  # the starter says that the server has ended: nothing to guard
        return
    kill_process_tree(server)
    remove_folder(folder)


def _switch_user(user: str) -> None:
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def _send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _read_parents_from_proc() -> list[tuple[int, int]]:
    pairs = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                # "pid (name) state parent …", and a name may hold anything.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                pairs.append((int(entry.name), int(fields[1])))
    return pairs


def _read_parents_from_ps() -> list[tuple[int, int]]:
    with os.popen("ps -A -o pid=,ppid=") as listing:  # noqa: S605, S607  # a constant; ps is macOS's own
        return [(int(pid), int(parent)) for pid, parent in map(str.split, listing)]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
