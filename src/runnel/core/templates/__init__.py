"""Templates and conditions: Jinja's syntax, a small part of its language, an evaluator of our own.

`compile_tree` and `compile_expression` accept or refuse (TemplateSyntaxError); what they return
gives a JSON value, MissingValueError or TemplateEvaluationError for any scope. No code is run.
"""

from runnel.core.json_types import Json
from runnel.core.templates.expression import Expression, compile_expression, is_true
from runnel.core.templates.failures import (
    MissingValueError,
    TemplateError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.references import RESERVED, Reference
from runnel.core.templates.run import Scope
from runnel.core.templates.tree import Tree, compile_tree

__all__ = [
    "RESERVED",
    "Expression",
    "Json",
    "MissingValueError",
    "Reference",
    "Scope",
    "TemplateError",
    "TemplateEvaluationError",
    "TemplateSyntaxError",
    "Tree",
    "compile_expression",
    "compile_tree",
    "is_true",
]
