"""The structure of the code: unique class names, deep modules, layers and lazy imports."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tests.architecture.rules import Module
from tests.architecture.test_tidy import PROGRAMS, ROOT, SOURCE, TESTS, parse

NAMED = (SOURCE, ROOT / "simulation", ROOT / "bench")
# CONTRIBUTING.md names files of the repository, and those of the package without its path.
NAMED_FROM = (
    ROOT,
    SOURCE,
    *(SOURCE / folder for folder in ("core", "authoring", "engine", "backends", "handlers", "app")),
    SOURCE / "api",
    SOURCE / "cli",
)
ENTRY_MODULES = {"__init__", "__main__"}
SMALL_LINES = 60

# Class names that may be defined twice, with the reason.
SHARED_CLASS_NAMES: dict[str, str] = {}

# Small files with at most one importer, with the reason. A path ending in a slash is a folder.
SMALL_FILES = {
    "src/runnel/cli/commands/": "one file per command, imported by its name when it is called",
    "src/runnel/handlers/shell_guardian.py": "run as a program: it must not import the handlers",
    "simulation/checks/": "one file per promise that the simulation checks",
}

# Modules that `runnel run` of a plain workflow must not load, with their cost. A package stands for
# all of its modules. tests/performance/test_cold_start.py checks the commands.
SEAMS = {
    "runnel.core.templates.jinja_syntax": "jinja2, 60 ms: only with templates",
    "runnel.authoring.json_schema": "jsonschema, 150 ms: only with a schema that needs it",
    "runnel.authoring.documents.yaml": "yaml, 40 ms: only with YAML",
    "runnel.handlers.http": "45 ms, and httpx 110 ms more: only with its tasks",
    "runnel.handlers.llm": "as handlers.http",
    "runnel.handlers.shell": "45 ms: only with its tasks",
    "runnel.handlers.external_service": "as handlers.http",
    "runnel.backends.redis": "another store is opened",
    "runnel.backends.postgres": "another store is opened, and asyncpg may not be installed",
    "runnel.backends.redis_postgres": "as backends.redis and backends.postgres",
    "runnel.app.doctor": "imports every backend",
    "runnel.app.decorated": "only for workflows that Python functions describe",
    "runnel.app.private_servers": "only `dev --with-servers` and benchmarks start servers",
    "runnel.api": "FastAPI and Pydantic, 300 ms: only for the API",
    "runnel.telemetry.prometheus": "prometheus_client: only for processes that serve metrics",
    "runnel.cli.render.live_frames": "rich, 37 ms: only on a terminal",
    "runnel.cli.render.top_screen": "as cli.render.live_frames",
    "runnel.engine.worker.child_main": "the program of a child process",
    "runnel.handlers.shell_guardian": "the program that ends a worker's commands",
}
# Packages that `runnel run` never loads, so they may import lazy modules at the top. A command is
# imported when it is called.
BESIDE_RUN = ("runnel.cli.commands", "runnel.bench", "runnel.testing")


def python_files(folders: Iterable[Path]) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def module_name(module: Module) -> str:
    """Returns the dotted name that imports use."""
    parts = Path(module.name.removeprefix("src/")).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yields every name that may be a module: `from a import b` gives `a` and `a.b`."""
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(source), names=names, level=0):
                yield source
                yield from (f"{source}.{alias.name}" for alias in names)
            case _:
                continue


def is_within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def class_places() -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for module in map(parse, python_files(NAMED)):
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
    return places


def test_a_class_name_is_unique() -> None:
    """Histories and inboxes store the names of events and commands, so those can't be renamed."""
    allowed = SHARED_CLASS_NAMES.keys()
    duplicates = {
        name: places
        for name, places in class_places().items()
        if len(places) > 1 and name not in allowed
    }

    assert duplicates == {}


def test_every_shared_class_name_is_still_shared() -> None:
    places = class_places()

    assert [name for name in SHARED_CLASS_NAMES if len(places[name]) < 2] == []


def importers() -> dict[str, set[str]]:
    """Maps each imported name to the modules outside tests that import it anywhere."""
    by_name: dict[str, set[str]] = defaultdict(set)
    for module in map(parse, python_files((SOURCE, *PROGRAMS))):
        for name in imported_names(module.nodes):
            by_name[name].add(module_name(module))
    return by_name


def lonely_files() -> list[str]:
    """Returns the small files that at most one module imports, which is in the same package."""
    by_name = importers()
    lonely = []
    for path in python_files(NAMED):
        module = parse(path)
        name = module_name(module)
        package = name.rpartition(".")[0]
        is_small = module.text.count("\n") < SMALL_LINES and path.stem not in ENTRY_MODULES
        users = by_name[name]
        if is_small and len(users) <= 1 and all(is_within(user, [package]) for user in users):
            lonely.append(module.name)
    return lonely


def test_a_small_file_has_more_than_one_user() -> None:
    """A small file with one importer in its own package belongs into that importer."""
    assert [name for name in lonely_files() if not name.startswith(tuple(SMALL_FILES))] == []


def test_every_exempt_small_file_exists_and_is_small() -> None:
    lonely = lonely_files()

    assert [place for place in SMALL_FILES if not any(n.startswith(place) for n in lonely)] == []


def read_layers() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["type"] == "layers")


def test_the_import_contract_covers_every_package() -> None:
    layers = read_layers()

    named = [name.strip() for name in chain(*(layer.split("|") for layer in layers["layers"]))]
    packages = [path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    assert sorted(named) == sorted(packages)
    assert layers["exhaustive"] is True
    assert layers["exhaustive_ignores"] == ["__main__"]


def test_the_root_package_holds_no_loose_module() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == ENTRY_MODULES


def imports_at_load(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the imports that run when the module is loaded, without TYPE_CHECKING blocks."""
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                continue
            case ast.If() | ast.Try() | ast.With():
                yield from imports_at_load(node.body)
            case _:
                continue


def test_only_a_lazy_module_imports_a_lazy_module_at_the_top() -> None:
    """Any other module with such an import makes every command load it."""
    crossed = []
    for path in python_files([SOURCE]):
        module = parse(path)
        name = module_name(module)
        if is_within(name, (*SEAMS, *BESIDE_RUN)):
            continue
        tree = module.nodes[0]
        body = tree.body if isinstance(tree, ast.Module) else []
        imported = imported_names(imports_at_load(body))
        crossed += [f"{name} -> {other}" for other in imported if is_within(other, SEAMS)]

    assert crossed == []


def test_every_lazy_module_exists() -> None:
    modules = {module_name(parse(path)) for path in python_files([SOURCE])}

    assert [name for name in (*SEAMS, *BESIDE_RUN) if name not in modules] == []


def test_no_program_imports_the_tests() -> None:
    imported = {
        f"{module.name}: {name}"
        for module in map(parse, python_files((SOURCE, *PROGRAMS)))
        for name in imported_names(module.nodes)
        if is_within(name, [TESTS.name])
    }

    assert imported == set()


def test_contributing_describes_the_tree_as_it_is() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = [path.parent for path in SOURCE.glob("*/__init__.py")]
    missing = [f"{path.name}/" for path in packages if f"\n  {path.name}/ " not in text]

    named = re.findall(r"(?<![\w/])(?:[a-z_]+/)+(?:[a-z_]+\.[a-z]+)?(?![\w/*])", text)
    assert missing == []
    assert [name for name in named if not any((p / name).exists() for p in NAMED_FROM)] == []


def test_contributing_has_the_layers_of_the_contract() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = ["  ".join(map(str.strip, layer.split("|"))) for layer in read_layers()["layers"]]

    assert "\n".join(["```", *lines, "```"]) in text
