"""Time zones by their names, `Europe/Berlin`, from the machine or from the package tzdata."""

from datetime import tzinfo
from functools import lru_cache

from runnel.core.checks.wording import closest, quoted

KNOWN = 100


class UnknownZoneError(ValueError):
    """The message says which one was probably meant."""


@lru_cache(maxsize=KNOWN)
def zone_of(name: str) -> tzinfo:
    """Raises UnknownZoneError."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UnknownZoneError(f"there is no time zone {quoted(name)}{_suggestion(name)}") from None


def _suggestion(name: str) -> str:
    """By the name of the city alone, or by what is written nearly so."""
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    city = "/" + name.strip().replace(" ", "_").lower()
    found = next((each for each in known if ("/" + each).lower().endswith(city)), None)
    meant = found or closest(name, known)
    return (
        "; a name is such as Europe/Berlin or UTC" if meant is None else f", did you mean {meant}?"
    )
