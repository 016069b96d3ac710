"""The one table from what went wrong to the status that an HTTP client is told."""

from http import HTTPStatus

from runnel import errors

S = HTTPStatus

STATUSES: dict[type[Exception], HTTPStatus] = {
    errors.MalformedBodyError: S.BAD_REQUEST,
    errors.NotAuthenticatedError: S.UNAUTHORIZED,
    errors.WebhookRefusedError: S.UNAUTHORIZED,
    errors.MissingScopeError: S.FORBIDDEN,
    errors.ForeignRequestError: S.FORBIDDEN,
    errors.NotAllowedError: S.FORBIDDEN,
    errors.NotFoundError: S.NOT_FOUND,
    errors.WrongStateError: S.CONFLICT,
    errors.ConflictError: S.CONFLICT,
    errors.BodyTooLargeError: S.REQUEST_ENTITY_TOO_LARGE,
    errors.UnsupportedMediaError: S.UNSUPPORTED_MEDIA_TYPE,
    errors.InputError: S.UNPROCESSABLE_ENTITY,
    errors.TooManyRequestsError: S.TOO_MANY_REQUESTS,
    errors.OverloadedError: S.SERVICE_UNAVAILABLE,
    errors.TooManyStreamsError: S.SERVICE_UNAVAILABLE,
    errors.StoreError: S.SERVICE_UNAVAILABLE,
    errors.EngineEndedError: S.SERVICE_UNAVAILABLE,
}
"""The nearest class counts: an InputError of a kind that is not listed is an InputError."""


def status_of(error: BaseException) -> HTTPStatus:
    """500 for what no caller can do anything about."""
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return S.INTERNAL_SERVER_ERROR
