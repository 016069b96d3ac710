"""Template trees: JSON whose strings may hold `{{ }}`, such as a node's config."""

from functools import lru_cache
from typing import TypeAlias

import msgspec

from runnel.core.templates.errors import (
    CACHED_SOURCES,
    TEXT_BYTES_MAX,
    TREE_DEPTH_MAX,
    TemplateError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.filters import bounded_text, too_long
from runnel.core.templates.nodes import Applied, Key, Node, Reference, Run, Scope, path_text
from runnel.core.templates.parser import OPENING, Hole, parse, pieces_of
from runnel.core.values import Json

# Conditions: one expression by itself.


class Expression(msgspec.Struct, frozen=True):
    source: str
    references: frozenset[Reference]
    node: Node
    where: str

    def evaluate(self, scope: Scope) -> Json:
        """Raises MissingValueError or TemplateEvaluationError, and nothing else."""
        try:
            return evaluate(self.node, Run(scope), template=self.source)
        except TemplateError as error:
            error.placed(where=self.where)
            raise


def compile_expression(source: str, *, where: str = "condition") -> Expression:
    """`a.x > 3 and input.flag`, or the same in one `{{ }}`; raises TemplateSyntaxError."""
    try:
        parsed = parse(_unwrapped(source.strip()))
    except TemplateSyntaxError as error:
        error.placed(template=source.strip(), where=where)
        raise
    return Expression(
        source=source.strip(), references=parsed.references, node=parsed.node, where=where
    )


def is_true(value: Json) -> bool:
    """Whether a condition with this value holds: null, false, 0 and all that is empty do not."""
    return bool(value)


def evaluate(node: Node, run: Run, *, template: str) -> Json:
    """The value of a node; errors tell the template that they come from."""
    try:
        return node.evaluate(run)
    except TemplateError as error:
        error.placed(template=template)
        raise
    except RecursionError:
        raise TemplateEvaluationError(
            "its values are nested too deeply", template=template
        ) from None


def _unwrapped(source: str) -> str:
    if not OPENING.match(source):
        return source
    pieces = pieces_of(source)
    if len(pieces) == 1 and isinstance(pieces[0], Hole):
        return pieces[0].source
    raise TemplateSyntaxError("expected one expression, with or without one {{ }} around all of it")


class Blank(msgspec.Struct, frozen=True):
    """One `{{ }}` inside a string."""

    node: Node
    template: str


class Text(msgspec.Struct, frozen=True):
    """A string with at least one `{{ }}`; when there is nothing else, its value keeps its type."""

    pieces: tuple[str | Blank, ...]
    references: frozenset[Reference]

    def resolve(self, run: Run) -> Json:
        only = self.pieces[0]
        if len(self.pieces) == 1 and isinstance(only, Blank):
            return evaluate(only.node, run, template=only.template)
        parts: list[str] = []
        left = TEXT_BYTES_MAX
        for piece in self.pieces:
            part = piece if isinstance(piece, str) else _rendered(piece, run)
            left -= len(part)
            if left < 0:
                raise too_long()
            parts.append(part)
        return bounded_text("".join(parts))


def _rendered(blank: Blank, run: Run) -> str:
    as_string = Applied(filter="string", operand=blank.node, arguments=())
    return str(evaluate(as_string, run, template=blank.template))


class Leaf(msgspec.Struct, frozen=True):
    text: Text
    where: str

    def resolve(self, run: Run) -> Json:
        try:
            return self.text.resolve(run)
        except TemplateError as error:
            error.placed(where=self.where)
            raise


class Branch(msgspec.Struct, frozen=True):
    """A list or an object; `changing` are the places below which there are templates."""

    value: Json
    changing: tuple[tuple[Key, "Leaf | Branch"], ...]

    def resolve(self, run: Run) -> Json:
        resolved = self.value.copy()
        for key, part in self.changing:
            resolved[key] = part.resolve(run)
        return resolved


Part: TypeAlias = Leaf | Branch


class Tree(msgspec.Struct, frozen=True):
    value: Json
    references: frozenset[Reference]
    part: Part | None

    @property
    def is_static(self) -> bool:
        return self.part is None

    def resolve(self, scope: Scope) -> Json:
        """The value with its templates filled in; what has none is shared, not copied.

        Raises MissingValueError or TemplateEvaluationError, and nothing else.
        """
        return self.value if self.part is None else self.part.resolve(Run(scope))


def compile_tree(value: Json, *, where: str = "config") -> Tree:
    """Raises TemplateSyntaxError for the first template that is not one, naming its place."""
    compiler = _Compiler(where)
    part = compiler.part_of(value)
    return Tree(value=value, references=frozenset(compiler.references), part=part)


class _Compiler:
    """Knows where in the tree it is; spells that out only where there is a template."""

    def __init__(self, where: str) -> None:
        self.references: set[Reference] = set()
        self._where = where
        self._trail: list[Key] = []

    def part_of(self, value: Json) -> Part | None:
        """None when there is no template in it."""
        if isinstance(value, str):
            return self._leaf(value) if OPENING.search(value) else None
        if isinstance(value, dict):
            return self._branch(value, list(value.items()))
        if isinstance(value, list):
            return self._branch(value, list(enumerate(value)))
        return None

    def _leaf(self, value: str) -> Part:
        try:
            text = compile_text(value)
        except TemplateSyntaxError as error:
            error.placed(template=value, where=self._place())
            raise
        self.references |= text.references
        return Leaf(text=text, where=self._place())

    def _branch(self, value: Json, items: list[tuple[Key, Json]]) -> Part | None:
        if len(self._trail) >= TREE_DEPTH_MAX:
            raise TemplateSyntaxError(
                f"nested too deeply: at most {TREE_DEPTH_MAX} levels", where=self._place()
            )
        changing: list[tuple[Key, Part]] = []
        for key, item in items:
            self._trail.append(key)
            part = self.part_of(item)
            self._trail.pop()
            if part is not None:
                changing.append((key, part))
        return Branch(value=value, changing=tuple(changing)) if changing else None

    def _place(self) -> str:
        return path_text(self._where, tuple(self._trail))


@lru_cache(maxsize=CACHED_SOURCES)
def compile_text(text: str) -> Text:
    """Expects a text with an opening in it; raises TemplateSyntaxError without a place."""
    pieces: list[str | Blank] = []
    references: frozenset[Reference] = frozenset()
    for piece in pieces_of(text):
        if isinstance(piece, str):
            pieces.append(piece)
            continue
        template = f"{{{{ {piece.source} }}}}"
        try:
            parsed = parse(piece.source)
        except TemplateSyntaxError as error:
            error.placed(template=template)
            raise
        pieces.append(Blank(node=parsed.node, template=template))
        references |= parsed.references
    return Text(pieces=tuple(pieces), references=references)
