"""Why a server could not be reached, in the words of whoever knew it first."""

import os
import ssl

import httpx


def reason_of(error: httpx.RequestError) -> str:
    """What the operating system said, if it did: libraries say that 'all attempts failed'."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ssl.SSLError):  # whose number is none of the operating system
            return _tls_reason(found)
        if isinstance(found, OSError) and found.errno is not None:
            said = os.strerror(found.errno) if found.errno > 0 else str(found.strerror)
            return said[:1].lower() + said[1:]
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        else:
            found = found.__cause__ or found.__context__
    return str(error) or type(error).__name__


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS, as https:// says"
    return f"TLS failed ({error.reason or error})"
