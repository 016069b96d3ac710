"""Compiles templates: conditions, and JSON whose strings may contain `{{ }}`, such as a node's
config.
"""

from functools import lru_cache
from typing import TypeAlias

import msgspec

from runnel.core.templates.errors import (
    CACHED_SOURCES_MAX,
    TEXT_BYTES_MAX,
    TREE_DEPTH_MAX,
    MissingValueError,
    TemplateError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.filters import check_text_size, make_text_too_long_error
from runnel.core.templates.nodes import (
    EvaluationContext,
    ExpressionNode,
    FilterCall,
    PathKey,
    PathLookup,
    TemplateReference,
    TemplateScope,
    format_path,
)
from runnel.core.templates.parser import (
    OPENING_PATTERN,
    SubstitutionSource,
    parse_expression,
    split_template,
)
from runnel.core.values import Json

FOR_EACH = "for_each"

# -- conditions: a single expression ------------------------------------------------------------


class CompiledExpression(msgspec.Struct, frozen=True):
    """A compiled condition or list expression. `where` names its field in error messages.

    If the whole expression is a value of a skipped node, a condition is null, and a list is empty.
    """

    source: str
    references: frozenset[TemplateReference]
    node: ExpressionNode
    where: str

    def evaluate(self, scope: TemplateScope) -> Json:
        """Returns the value; raises only MissingValueError or TemplateEvaluationError."""
        try:
            return evaluate_node(self.node, EvaluationContext(scope), template=self.source)
        except MissingValueError as error:
            if error.stands_for_null and isinstance(self.node, PathLookup):
                return [] if self.where == FOR_EACH else None
            error.add_location(where=self.where)
            raise
        except TemplateError as error:
            error.add_location(where=self.where)
            raise


def compile_expression(source: str, *, where: str = "condition") -> CompiledExpression:
    """Compiles an expression such as `a.x > 3 and input.flag`, or the same expression inside one
    `{{ }}`.

    Raises TemplateSyntaxError if the expression is invalid.
    """
    try:
        parsed = parse_expression(_unwrap(source.strip()))
    except TemplateSyntaxError as error:
        error.add_location(template=source.strip(), where=where)
        raise
    return CompiledExpression(
        source=source.strip(), references=parsed.references, node=parsed.node, where=where
    )


def is_true(value: Json) -> bool:
    """Returns True if a condition with this value holds.

    A condition does not hold if its value is null, false, 0 or empty.
    """
    return bool(value)


def evaluate_node(node: ExpressionNode, context: EvaluationContext, *, template: str) -> Json:
    """Returns the value of a node. Adds the template to an error that the evaluation raises."""
    try:
        return node.evaluate(context)
    except TemplateError as error:
        error.add_location(template=template)
        raise
    except RecursionError:
        raise TemplateEvaluationError(
            "the values are nested too deeply", template=template
        ) from None


def _unwrap(source: str) -> str:
    if not OPENING_PATTERN.match(source):
        return source
    pieces = split_template(source)
    if len(pieces) == 1 and isinstance(pieces[0], SubstitutionSource):
        return pieces[0].source
    raise TemplateSyntaxError("expected one expression, with or without one {{ }} around all of it")


class Substitution(msgspec.Struct, frozen=True):
    """One `{{ }}` inside a string."""

    node: ExpressionNode
    template: str


class TemplateString(msgspec.Struct, frozen=True):
    """A string with at least one `{{ }}`.

    A single `{{ }}` without other text keeps the type of its value.
    """

    pieces: tuple[str | Substitution, ...]
    references: frozenset[TemplateReference]

    def resolve(self, context: EvaluationContext) -> Json:
        try:
            return self._resolve(context)
        except MissingValueError as error:
            if error.voids_template:
                return None
            raise

    def _resolve(self, context: EvaluationContext) -> Json:
        only = self.pieces[0]
        if len(self.pieces) == 1 and isinstance(only, Substitution):
            return _evaluate_only(only, context)
        parts: list[str] = []
        bytes_remaining = TEXT_BYTES_MAX
        for piece in self.pieces:
            part = piece if isinstance(piece, str) else _render(piece, context)
            bytes_remaining -= len(part)
            if bytes_remaining < 0:
                raise make_text_too_long_error()
            parts.append(part)
        return check_text_size("".join(parts))


def _evaluate_only(substitution: Substitution, context: EvaluationContext) -> Json:
    try:
        return evaluate_node(substitution.node, context, template=substitution.template)
    except MissingValueError as error:
        if error.stands_for_null and isinstance(substitution.node, PathLookup):
            return None
        raise


def _render(substitution: Substitution, context: EvaluationContext) -> str:
    as_string = FilterCall(filter="string", operand=substitution.node, arguments=())
    return str(evaluate_node(as_string, context, template=substitution.template))


class TemplateLeaf(msgspec.Struct, frozen=True):
    """A string with templates, and its path in the tree."""

    text: TemplateString
    where: str

    def resolve(self, context: EvaluationContext) -> Json:
        try:
            return self.text.resolve(context)
        except TemplateError as error:
            error.add_location(where=self.where)
            raise


class TemplateBranch(msgspec.Struct, frozen=True):
    """A list or an object. `templated_items` are the entries that contain templates."""

    value: Json
    templated_items: tuple[tuple[PathKey, "TemplateLeaf | TemplateBranch"], ...]

    def resolve(self, context: EvaluationContext) -> Json:
        resolved = self.value.copy()
        for key, part in self.templated_items:
            resolved[key] = part.resolve(context)
        return resolved


TreePart: TypeAlias = TemplateLeaf | TemplateBranch


class TemplateTree(msgspec.Struct, frozen=True):
    """A compiled JSON value. `part` is None if the value contains no template."""

    value: Json
    references: frozenset[TemplateReference]
    part: TreePart | None

    @property
    def is_static(self) -> bool:
        return self.part is None

    def resolve(self, scope: TemplateScope) -> Json:
        """Returns the value with its templates resolved. Parts without templates are shared, not
        copied.

        Raises only MissingValueError or TemplateEvaluationError.
        """
        return self.value if self.part is None else self.part.resolve(EvaluationContext(scope))


def compile_tree(value: Json, *, where: str = "config") -> TemplateTree:
    """Compiles all templates in a JSON value.

    Raises TemplateSyntaxError for the first invalid template, with its path.
    """
    compiler = _Compiler(where)
    part = compiler.compile_part(value)
    return TemplateTree(value=value, references=frozenset(compiler.references), part=part)


class _Compiler:
    """Compiles the parts of a JSON value and tracks the path of the current part.

    Formats a path only where there is a template.
    """

    def __init__(self, where: str) -> None:
        self.references: set[TemplateReference] = set()
        self._where = where
        self._trail: list[PathKey] = []

    def compile_part(self, value: Json) -> TreePart | None:
        """Returns the compiled value, or None if the value contains no template."""
        if isinstance(value, str):
            return self._compile_leaf(value) if OPENING_PATTERN.search(value) else None
        if isinstance(value, dict):
            return self._compile_branch(value, list(value.items()))
        if isinstance(value, list):
            return self._compile_branch(value, list(enumerate(value)))
        return None

    def _compile_leaf(self, value: str) -> TreePart:
        try:
            text = compile_text(value)
        except TemplateSyntaxError as error:
            error.add_location(template=value, where=self._format_location())
            raise
        self.references |= text.references
        return TemplateLeaf(text=text, where=self._format_location())

    def _compile_branch(self, value: Json, items: list[tuple[PathKey, Json]]) -> TreePart | None:
        if len(self._trail) >= TREE_DEPTH_MAX:
            raise TemplateSyntaxError(
                f"nested too deeply: at most {TREE_DEPTH_MAX} levels", where=self._format_location()
            )
        templated_items: list[tuple[PathKey, TreePart]] = []
        for key, item in items:
            self._trail.append(key)
            part = self.compile_part(item)
            self._trail.pop()
            if part is not None:
                templated_items.append((key, part))
        return (
            TemplateBranch(value=value, templated_items=tuple(templated_items))
            if templated_items
            else None
        )

    def _format_location(self) -> str:
        return format_path(self._where, tuple(self._trail))


@lru_cache(maxsize=CACHED_SOURCES_MAX)
def compile_text(text: str) -> TemplateString:
    """Compiles a text that contains at least one `{{`.

    The TemplateSyntaxError of an invalid template has no path yet.
    """
    pieces: list[str | Substitution] = []
    references: frozenset[TemplateReference] = frozenset()
    for piece in split_template(text):
        if isinstance(piece, str):
            pieces.append(piece)
            continue
        template = f"{{{{ {piece.source} }}}}"
        try:
            parsed = parse_expression(piece.source)
        except TemplateSyntaxError as error:
            error.add_location(template=template)
            raise
        pieces.append(Substitution(node=parsed.node, template=template))
        references |= parsed.references
    return TemplateString(pieces=tuple(pieces), references=references)
