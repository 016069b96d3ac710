"""Creates TLS certificates for servers on loopback, on demand."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import MissingPart


@pytest.fixture
def openssl(missing_part: MissingPart) -> str:
    return shutil.which("openssl") or missing_part("openssl", "it makes the certificates")


def make_certificate(openssl: str, folder: Path, *, host: str = "localhost", days: int = 2) -> Path:
    """Creates a self-signed certificate with its key in the same file."""
    path = folder / "certificate.pem"
    names = ["-subj", "/CN=test", "-addext", f"subjectAltName=DNS:{host}"]
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", str(path)]
    made = subprocess.run([openssl, *new], check=True, capture_output=True)
    key = path.read_bytes()
    path.write_bytes(key + made.stdout)
    again = ["x509", "-in", str(path), "-signkey", str(path), "-days", str(days)]
    signed = subprocess.run([openssl, *again], check=True, capture_output=True)
    path.write_bytes(key + signed.stdout)
    return path
