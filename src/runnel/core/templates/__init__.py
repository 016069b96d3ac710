"""Templates and conditions: a subset of Jinja's language, parsed by Jinja and evaluated by Runnel.

`compile_tree` and `compile_expression` raise TemplateSyntaxError. An evaluation returns a JSON
value, or raises MissingValueError or TemplateEvaluationError. A template never executes code.
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
