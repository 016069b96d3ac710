"""Lines at the bottom of a terminal that are drawn again; what is printed appears above them."""

from collections.abc import Callable, Iterable

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from runnel.cli.relay import Relay


class LiveLines:
    """`lines` is called with the height of the terminal whenever they are drawn.

    From its making until `end`, all that this process and its children write is relayed.
    """

    def __init__(self, lines: Callable[[int], Iterable[Text]]) -> None:
        self._lines = lines
        self._relay = Relay(self._print)
        self._console = Console(file=self._relay.terminal, highlight=False)
        self._fit()
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            auto_refresh=False,
            vertical_overflow="crop",
        )

    def start(self) -> None:
        self._live.start()

    def refresh(self) -> None:
        if self._live.is_started:
            self._fit()
            self._live.refresh()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, style="yellow")

    def end(self) -> None:
        self._relay.end()
        self._live.stop()
        self._relay.terminal.close()

    def _fit(self) -> None:
        """To the terminal as it is now: it may have been resized."""
        self._console.size = ConsoleDimensions(*self._relay.size())

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)

    def _render(self) -> Text:
        lines = self._lines(self._console.height)
        text = Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text
