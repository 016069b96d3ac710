"""Where the servers are, put together from the settings; and what of that must not be shown."""

from urllib.parse import quote, unquote, urlsplit

from runnel.settings import Settings, SettingsError
from runnel.settings.parsers import without_password

LOCALHOST = "localhost"
UNNAMED = (
    "REDIS_URL: expected the URL of a Redis server (or REDIS_HOST and the like), got nothing; "
    "with RUNNEL_ENV=prod it is never guessed"
)


def redis_address(settings: Settings) -> str:
    """The URL, with the password; `REDIS_URL` wins over host and port.

    Raises SettingsError when none is set and the environment is one in which nobody guesses.
    """
    if settings.redis_url is not None:
        return settings.redis_url
    host = settings.redis_host
    if host is None and settings.environment == "prod":
        raise SettingsError([UNNAMED])
    credentials = _credentials(settings.redis_username, settings.redis_password)
    return f"redis://{credentials}{_host(host)}:{settings.redis_port}/{settings.redis_db}"


def redis_shown(settings: Settings) -> str:
    return without_password(redis_address(settings))


def postgres_address(settings: Settings) -> str:
    """The URL, with the password; `POSTGRES_URL` wins over host and port."""
    if settings.postgres_url is not None:
        return settings.postgres_url
    credentials = _credentials(settings.postgres_user, settings.postgres_password)
    place = f"{_host(settings.postgres_host)}:{settings.postgres_port}"
    return f"postgresql://{credentials}{place}/{quote(settings.postgres_db, safe='')}"


def postgres_shown(settings: Settings) -> str:
    return without_password(postgres_address(settings))


def secrets_of(settings: Settings) -> list[str]:
    """Everything that must never be printed, as it is written and as it is meant."""
    found = [settings.redis_password, settings.postgres_password]
    urls = (settings.redis_url, settings.postgres_url)
    found += [urlsplit(url).password for url in urls if url is not None]
    given = [each for each in found if each]
    return [*given, *map(unquote, given)]


def _credentials(user: str | None, password: str | None) -> str:
    if not user and not password:
        return ""
    secret = "" if password is None else f":{quote(password, safe='')}"
    return f"{quote(user or '', safe='')}{secret}@"


def _host(host: str | None) -> str:
    """An IPv6 address needs brackets in a URL."""
    name = host or LOCALHOST
    return f"[{name}]" if ":" in name else name
