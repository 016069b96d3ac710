"""The built-in handlers, with what the settings allow them to do in this place."""

from collections.abc import Iterable

from runnel.authoring.registry import HandlerRegistry
from runnel.handlers import Means, builtin_registry
from runnel.handlers.addresses import Addresses
from runnel.handlers.permissions import ALL, Functions, Programs
from runnel.ports.clock import Clock
from runnel.settings import Settings


def local_handlers(settings: Settings, clock: Clock) -> HandlerRegistry:
    """For documents of the user who runs this process: everything, unless the settings say less."""
    return builtin_registry(_means(settings, clock, otherwise=(ALL,)))


def server_handlers(
    settings: Settings,
    clock: Clock,
    *,
    app_module: str | None = None,
    app_tasks: Iterable[str] = (),
    own_modules: Iterable[str] = (),
) -> HandlerRegistry:
    """For documents that anybody may have submitted: what the settings allow, and nothing else.

    `app_module` is code that the operator has loaded: the functions that it defines are allowed,
    and the tasks that it has, also those that it has imported. `own_modules` are patterns of what
    is allowed where the settings say nothing.
    """
    means = _means(settings, clock, otherwise=())
    if settings.allowed_functions is None:
        means = means.with_functions(own_modules)
    return builtin_registry(means if app_module is None else means.with_app(app_module, app_tasks))


def local_functions(settings: Settings) -> Functions:
    """Those that `local_handlers` lets a document call."""
    named = settings.allowed_functions
    return Functions() if named is None else Functions(named)


def _means(settings: Settings, clock: Clock, *, otherwise: tuple[str, ...]) -> Means:
    functions, programs = settings.allowed_functions, settings.allowed_programs
    return Means(
        functions=Functions(otherwise if functions is None else functions),
        programs=Programs(otherwise if programs is None else programs),
        addresses=Addresses(settings.allowed_addresses),
        llm_url=settings.llm_url,
        llm_api_key=settings.llm_api_key,
        clock=clock,
    )
