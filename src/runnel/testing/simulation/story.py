"""A broken run in words: what was asked, what went wrong, and the last things that happened."""

from runnel.core.workflow import Node, Workflow
from runnel.testing.simulation.plan import Order
from runnel.testing.simulation.world import Run

LINES_MAX = 40
LINE_CHARS_MAX = 300


def tell(run: Run, shrunk: Run) -> str:
    plan = shrunk.plan
    places = f"{plan.orchestrators} orchestrators, {plan.workers} workers"
    lines = [
        f"seed {run.plan.seed} broke an invariant: {run.broken}",
        f"  the smallest run that breaks it so: {places}, {plan.partitions} partitions",
        f"  faults: {', '.join(sorted(plan.faults)) or 'none'}",
        *(f"    {act.at:7.2f} {act.fault} {act.target} {act.lasts_s:.2f} s" for act in plan.acts),
        *(line for order in plan.orders for line in _order(order)),
        f"  which ends so: {shrunk.broken}",
        *(f"  {line[:LINE_CHARS_MAX]}" for line in _last(shrunk)),
        f"  again: make sim SEED={run.plan.seed} COUNT=1",
    ]
    return "\n".join(lines)


def _order(order: Order) -> list[str]:
    signals = "".join(f", signal at {at:.2f}" for at in order.signals_at)
    more = {
        "started at": order.start_at,
        "cancelled at": order.cancel_at,
    }
    said = "".join(f", {what} {at:.2f}" for what, at in more.items() if at is not None)
    force = " by force" if order.cancel_at is not None and order.is_forced else ""
    again = ", each signal twice" if order.signals_at and order.repeats_signals else ""
    head = f"  {order.execution_id} asked for at {order.at:.2f}{signals}{again}{said}{force}"
    return [f"{head}, input {order.final_input}", *_workflow(order.workflow, "    ")]


def _workflow(workflow: Workflow, indent: str) -> list[str]:
    limits = {
        "max_concurrency": workflow.max_concurrency,
        "timeout": workflow.timeout_seconds,
        "sla": workflow.sla_seconds,
    }
    said = "".join(f", {name} {value}" for name, value in limits.items() if value is not None)
    lines = [f"{indent}{workflow.name}: {workflow.on_failure}{said}"]
    for node in workflow.nodes:
        lines.append(f"{indent}  {_node(node)}")
        if node.child is not None:
            lines += _workflow(node.child, f"{indent}    ")
    return lines


def _node(node: Node) -> str:
    after = f" after {', '.join(node.dependencies)}" if node.dependencies else ""
    more = {
        "run_when": node.run_when if node.run_when != "default" else None,
        "condition": node.condition,
        "for_each": node.for_each,
        "key": node.concurrency_key,
        "tag": node.resource_tag,
        "retries": node.retry.max_retries or None,
    }
    said = "".join(f", {name} {value}" for name, value in more.items() if value is not None)
    return f"{node.id}: {node.handler}{after}{said} {node.config or ''}"


def _last(run: Run) -> list[str]:
    """The execution that was broken is named in the finding: lines about others are left out."""
    problem = "" if run.broken is None else run.broken.problem
    named = [order.execution_id for order in run.plan.orders if order.execution_id in problem]
    others = {order.execution_id for order in run.plan.orders} - set(named) if named else set()
    told = [
        line
        for line in run.story
        if not any(f" {other}/" in line or f"[{other} " in line for other in others)
    ]
    return told[-LINES_MAX:]
