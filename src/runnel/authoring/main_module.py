"""Modules by the name under which another process imports them, `__main__` among them."""

import sys
from pathlib import Path
from types import ModuleType


def main_name() -> str | None:
    """`flow` for `python flow.py`, `app.flow` for `python -m app.flow`; None without a file."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    path = Path(getattr(main, "__file__", None) or "")
    return path.stem if path.suffix == ".py" and path.stem.isidentifier() else None


def loaded_module(name: str) -> ModuleType | None:
    """What `import name` means here, if it has been imported: `__main__` by its other name too.

    So a script's functions are not imported a second time, next to those that it has.
    """
    found = sys.modules.get(name)
    if found is None and name == main_name():
        return sys.modules.get("__main__")
    return found


def import_folder(name: str) -> Path | None:
    """Where another process has to look for a loaded module; None when it has no file."""
    file = getattr(loaded_module(name), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    levels = name.count(".") + (path.name == "__init__.py")
    return path.parents[levels] if levels < len(path.parents) else path.parent
