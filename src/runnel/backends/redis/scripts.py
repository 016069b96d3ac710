"""The Lua scripts by name: read once, called by their hash."""

import hashlib
from pathlib import Path

import msgspec

PRELUDE = "prelude"


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
            found[path.stem] = script_of(path.stem, prelude + path.read_text(encoding="utf-8"))
    return found


def script_of(name: str, text: str) -> Script:
    """Redis names a script by this hash; nothing is protected by it."""
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha)


SCRIPTS = load_scripts(Path(__file__).with_name("scripts"))
