"""Conditions: one expression by itself."""

import msgspec

from runnel.core.json_types import Json
from runnel.core.templates.failures import (
    TemplateError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.nodes import Node
from runnel.core.templates.parse import parse
from runnel.core.templates.references import Reference
from runnel.core.templates.run import Run, Scope
from runnel.core.templates.scan import OPENING, Hole, pieces_of


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
