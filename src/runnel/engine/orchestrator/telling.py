"""What an operator is told of a batch, once it is committed."""

from runnel.core.ids import NO_ITEM
from runnel.engine.orchestrator.batch import Batch, header_of
from runnel.ports.telemetry import LETTER_WRITTEN, Telemetry


def tell(telemetry: Telemetry, batch: Batch) -> None:
    for aggregate_id, events in batch.events.items():
        changed = batch.changed.get(aggregate_id)
        header = header_of(changed) if changed is not None and changed.is_final else None
        graph = batch.graphs.get(aggregate_id)
        telemetry.committed(aggregate_id, batch.now, events, header, graph)
    for header in batch.headers:
        telemetry.committed(header.execution_id, batch.now, (), header, None)
    for letter in batch.dead_letters:
        token = letter.token
        telemetry.event(
            LETTER_WRITTEN,
            queue=letter.queue,
            workflow=letter.workflow,
            execution_id=token.execution_id,
            node_id=token.node_id,
            item=None if token.item == NO_ITEM else token.item,
            reason=letter.reason,
        )
