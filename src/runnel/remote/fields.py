"""An object that a server has answered."""

from collections.abc import Mapping

from runnel.core.json_types import Json
from runnel.errors import NotRunnelError


class Fields(dict[str, Json]):
    """Raises NotRunnelError for what it lacks: whoever answers so is something else."""

    def __init__(self, found: Mapping[str, Json], address: str) -> None:
        super().__init__(found)
        self._address = address

    def __missing__(self, name: str) -> Json:
        raise self.foreign(f"an object without '{name}'")

    def foreign(self, found: str) -> NotRunnelError:
        return NotRunnelError(self._address, found)
