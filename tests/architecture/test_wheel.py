"""The wheel holds src/runnel with its data files, and nothing else."""

from pathlib import PurePosixPath

from hatchling.builders.wheel import WheelBuilder

from tests.architecture.test_repository import files_of_the_repository
from tests.architecture.test_tidy import ROOT, SOURCE

# Files without which a module of the package does not work.
DATA = {".json", ".lua", ".sql", ".txt", ".typed"}


def wheel_files() -> set[str]:
    """Returns the paths in the wheel, without its metadata, and builds nothing."""
    builder = WheelBuilder(str(ROOT))
    return {
        PurePosixPath(file.distribution_path).as_posix()
        for file in builder.recurse_included_files()
    }


def test_the_wheel_holds_the_package_and_nothing_else() -> None:
    tree = {
        path.relative_to(SOURCE.parent).as_posix()
        for path in files_of_the_repository()
        if path.is_relative_to(SOURCE)
    }

    assert wheel_files() == tree


def test_the_wheel_holds_the_data_files() -> None:
    suffixes = {PurePosixPath(name).suffix for name in wheel_files()}

    assert suffixes >= DATA
