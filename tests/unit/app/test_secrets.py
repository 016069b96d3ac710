"""Secrets from a file and from the environment: parsing, errors and redaction."""

import os
from pathlib import Path

import pytest

from runnel.app.secrets import load_worker_secrets
from runnel.settings import SettingsError, read_settings
from runnel.settings.model import Settings
from runnel.telemetry.redaction import Redactor

PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"


def write_secrets(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "secrets"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_each_line_of_a_file_is_a_secret(tmp_path: Path) -> None:
    text = '# of the shop\n\napi_key = sk-1=2\nquoted="a\\nb c"\n  token=  geheim  \n'

    secrets = load_worker_secrets(Settings(secrets_file=write_secrets(tmp_path, text)))

    assert [secrets.get(name) for name in ("api_key", "quoted", "token", "other")] == [
        "sk-1=2",
        "a\nb c",
        "geheim",
        None,
    ]


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = write_secrets(tmp_path, "key = from file\nother = stays\n")

    secrets = load_worker_secrets(
        read_settings({"RUNNEL_SECRETS_FILE": str(path), "RUNNEL_SECRET_KEY": "from there"})
    )

    assert (secrets.get("key"), secrets.get("other")) == ("from there", "stays")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no equals sign geheim", "expected 'name = value' in line 1 of"),
        ("ok = fine\nAPI = geheim", "expected 'name = value' in line 2 of"),
        ("pin = 123", "expected a value of at least 4 characters in line 1 of"),
        ('key = "half geheim', "expected the quoted value in line 1 of"),
    ],
)
def test_the_error_of_a_wrong_line_has_its_number_but_not_its_text(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem) as caught:
        load_worker_secrets(Settings(secrets_file=write_secrets(tmp_path, text)))

    assert str(caught.value).startswith("RUNNEL_SECRETS_FILE: ")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_other_users_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_secrets(tmp_path, "key = geheim", mode)

    with pytest.raises(SettingsError, match=f"its mode is {mode:o}: chmod 600 '{path}'"):
        load_worker_secrets(Settings(secrets_file=path))


def test_a_path_that_is_not_a_readable_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"key = \xff\xfe\xff\xfe")
    (tmp_path / "binary").chmod(0o600)

    with pytest.raises(SettingsError, match="can't be read: No such file"):
        load_worker_secrets(Settings(secrets_file=tmp_path / "nothing"))
    with pytest.raises(SettingsError, match="can't be read: Is a directory"):
        load_worker_secrets(Settings(secrets_file=tmp_path))
    with pytest.raises(SettingsError, match="expected text in UTF-8"):
        load_worker_secrets(Settings(secrets_file=tmp_path / "binary"))
    with pytest.raises(SettingsError, match="expected a regular file, '/dev/null' is not one"):
        load_worker_secrets(Settings(secrets_file=Path(os.devnull)))


def test_each_line_of_a_long_secret_is_redacted() -> None:
    secrets = load_worker_secrets(Settings(secrets={"pem": PEM}, llm_api_key="sk-operator"))

    logged = Redactor(hide=secrets.redact).redact_text(
        "got MIIEvQIBADANBgkqhkiG9w0B and sk-operator"
    )

    assert logged == "got *** and ***"
    assert secrets.redact("AQEFAASCBKcwggSjAgEAAoIB: bad line") == "***: bad line"


def test_a_secret_is_redacted_without_its_final_line_break_too() -> None:
    secrets = load_worker_secrets(Settings(secrets={"token": " open-sesame\n"}))

    assert secrets.get("token") == " open-sesame\n"
    assert secrets.redact("Bearer open-sesame!") == "Bearer ***!"


def test_the_longest_secret_is_redacted_first() -> None:
    secrets = load_worker_secrets(
        Settings(secrets={"a": "open", "b": "open-sesame", "c": "sesame"})
    )

    assert secrets.redact("open-sesame, open, sesame") == "***, ***, ***"
