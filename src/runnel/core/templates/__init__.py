"""Templates and conditions: Jinja's syntax, a subset of its language, and an own evaluator.

`compile_tree` and `compile_expression` raise TemplateSyntaxError. Evaluation gives a JSON value,
MissingValueError or TemplateEvaluationError for any scope. No code is executed.
"""

from runnel.core.templates.errors import (
    MissingValueError,
    TemplateError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.nodes import RESERVED_NAMES, TemplateReference, TemplateScope
from runnel.core.templates.template import (
    CompiledExpression,
    TemplateTree,
    compile_expression,
    compile_tree,
    is_true,
)
from runnel.core.values import Json

__all__ = [
    "RESERVED_NAMES",
    "CompiledExpression",
    "Json",
    "MissingValueError",
    "TemplateError",
    "TemplateEvaluationError",
    "TemplateReference",
    "TemplateScope",
    "TemplateSyntaxError",
    "TemplateTree",
    "compile_expression",
    "compile_tree",
    "is_true",
]
