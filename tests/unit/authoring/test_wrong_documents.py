"""The exact error sentences for wrong documents."""

import pytest

from runnel.core.validation import find_problems
from runnel.errors import InvalidWorkflowError
from tests.unit.authoring.samples import Case
from tests.unit.authoring.wrong_documents import NODES, WORKFLOWS
from tests.unit.authoring.wrong_graphs import GRAPHS, HANDLERS
from tests.unit.authoring.wrong_templates import TEMPLATES
from tests.unit.authoring.wrong_texts import TEXTS
from tests.workflow_text import load_text

CASES = [*TEXTS, *WORKFLOWS, *NODES, *GRAPHS, *HANDLERS, *TEMPLATES]


def problems_in(text: str) -> tuple[str, ...]:
    try:
        workflow = load_text(text)
    except InvalidWorkflowError as error:
        return error.problems
    return tuple(find_problems(workflow))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.problems[0][:60])
def test_a_wrong_document_is_refused_with_every_problem(case: Case) -> None:
    assert problems_in(case.text) == case.problems


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.problems[0][:60])
def test_a_problem_is_one_short_line(case: Case) -> None:
    assert all("\n" not in problem and len(problem) < 300 for problem in case.problems)


def test_the_table_of_wrong_documents_is_not_empty() -> None:
    assert len(CASES) >= 150
