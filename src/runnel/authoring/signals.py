"""Whether anything in a workflow could ever wait for a signal of this name."""

from runnel.core.checks.wording import did_you_mean
from runnel.core.workflow import WAIT_FOR_SIGNAL, Workflow
from runnel.errors import InputError


def check_signal_name(workflow: Workflow, name: str) -> None:
    """Raises InputError for a name that no node waits for; one made by a template may be any."""
    waited = [
        node.config.get("signal") for node in workflow.nodes if node.handler == WAIT_FOR_SIGNAL
    ]
    names = sorted({str(each) for each in waited})
    if any("{{" in each for each in names) or name in names:
        return
    if not names:
        raise InputError(f"workflow '{workflow.name}' has no node that waits for a signal")
    hint = did_you_mean(name, names) or f"; they wait for: {', '.join(names)}"
    raise InputError(f"no node of workflow '{workflow.name}' waits for a signal '{name}'{hint}")
