"""The Lua scripts by name: read once, called by their hash."""

import hashlib
import re
from pathlib import Path

import msgspec

PRELUDE = "prelude"
# A part begins with its comment and ends before an empty line.
_PARTS = re.compile(r"(?:.+\n)+")
_NAMES = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)


class Script(msgspec.Struct, frozen=True):
    """`sha` is what EVALSHA takes: the server keeps a script until it restarts or is flushed."""

    name: str
    text: str
    sha: str


def load_scripts(folder: Path) -> dict[str, Script]:
    prelude = (folder / f"{PRELUDE}.lua").read_text(encoding="utf-8")
    found: dict[str, Script] = {}
    for path in sorted(folder.glob("*.lua")):
        if path.stem != PRELUDE:
            body = path.read_text(encoding="utf-8")
            found[path.stem] = script_of(path.stem, used_of(prelude, body) + body)
    return found


def used_of(prelude: str, body: str) -> str:
    """The parts of the prelude that a script uses, and those that they use.

    The server makes every function of a script anew in each call: all of them took 3.2 µs of the
    5.4 that an otherwise empty script takes.
    """
    text = ""
    for part in reversed(_PARTS.findall(prelude)):
        name = _NAMES.search(part)
        if name is not None and re.search(rf"\b{name[1]}\b", text + body):
            text = part + text
    return text


def script_of(name: str, text: str) -> Script:
    """Redis names a script by this hash; nothing is protected by it."""
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha)


SCRIPTS = load_scripts(Path(__file__).with_name("scripts"))
