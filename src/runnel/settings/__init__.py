"""Settings: read from the environment once, checked at start with a sentence per mistake."""

from runnel.settings.model import Durability, Environment, LogFormat, LogLevel, Settings
from runnel.settings.reading import (
    Reading,
    SettingsError,
    adjusted,
    look_alikes,
    read,
    read_settings,
)
from runnel.settings.showing import Shown, shown
from runnel.settings.variables import VARIABLES, Variable

__all__ = [
    "VARIABLES",
    "Durability",
    "Environment",
    "LogFormat",
    "LogLevel",
    "Reading",
    "Settings",
    "SettingsError",
    "Shown",
    "Variable",
    "adjusted",
    "look_alikes",
    "read",
    "read_settings",
    "shown",
]
