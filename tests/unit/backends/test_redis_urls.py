"""The parts and options that the URL of a Redis server can have."""

import pytest

from runnel.backends.redis.connection import RedisAddress, TlsOptions, parse_address
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.engine.clock import RealClock
from runnel.errors import InputError

URLS = {
    "redis://host": RedisAddress(host="host"),
    "redis://": RedisAddress(),
    "redis://[::1]:6380/": RedisAddress(host="::1", port=6380),
    "redis://:p%40ss@host:6380/3": RedisAddress(host="host", port=6380, db=3, password="p@ss"),
    "redis://user:pass@host/0?client_name=me&socket_keepalive=no": RedisAddress(
        host="host", username="user", password="pass", client_name="me", has_keepalive=False
    ),
    "rediss://host:6379/1?ssl_cert_reqs=none&ssl_min_version=771": RedisAddress(
        host="host", db=1, tls=TlsOptions(cert_reqs="none", min_version="771")
    ),
    "unix:///run/redis.sock?db=2&password=pass": RedisAddress(
        path="/run/redis.sock", db=2, password="pass"
    ),
}


@pytest.mark.parametrize("url", URLS)
def test_an_ordinary_url_is_accepted(url: str) -> None:
    assert parse_address(url) == URLS[url]


SHOWN = {
    "redis://user:secret@Host:6380/3": "host:6380/3",
    "redis://:secret@[::1]": "[::1]:6379/0",
    "unix://:secret@/run/redis.sock?db=2": "/run/redis.sock/2",
}


@pytest.mark.parametrize("url", SHOWN)
def test_an_address_is_shown_without_user_and_password(url: str) -> None:
    assert str(parse_address(url)) == SHOWN[url]


@pytest.mark.parametrize(
    "url",
    [
        *("rediss://h?ssl_cert_reqs=maybe", "rediss://h?ssl_min_version=9", "unix://"),
        *("redis://h?db=x", "redis://h/abc", "redis://h/-1", "redis://h/1/2", "redis://h?db=-1"),
    ],
)
def test_an_invalid_option_value_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="expected the URL of a Redis server"):
        parse_address(url)


@pytest.mark.parametrize(
    "option",
    ["socket_timeout=5", "max_connections=5", "protocol=3", "decode_responses=true", "foo=1"],
)
def test_the_error_for_an_unknown_option_names_it(option: str) -> None:
    url = f"redis://:secret@host:6379/0?{option}"

    with pytest.raises(InputError, match=f"got '{option.partition('=')[0]}'") as caught:
        RedisConnectionPool(url, RealClock())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("sign", "#?/")
def test_an_unquoted_password_is_not_read_as_a_port(sign: str) -> None:
    with pytest.raises(InputError, match="expected the URL of a Redis server") as caught:
        parse_address(f"redis://user:471{sign}1@host:6379/0")
    assert "471" not in str(caught.value)


def test_a_text_that_is_not_a_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(InputError, match="expected the URL of a Redis server") as caught:
        RedisConnectionPool("secret@nowhere", RealClock())
    assert "secret" not in str(caught.value)
