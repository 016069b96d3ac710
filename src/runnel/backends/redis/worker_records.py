"""Workers as `workers.lua` lists them."""

from collections.abc import Sequence

import msgspec

from runnel.ports.registry import WorkerAbout, WorkerRecord

_abouts = msgspec.json.Decoder(WorkerAbout)


def worker_records(
    now: int,
    living: Sequence[tuple[bytes, bytes, int, bytes]],
    dead: Sequence[tuple[bytes, bytes]],
) -> list[WorkerRecord]:
    """The dead once each, and only those that have not come back."""
    records = {
        worker: _record(now, worker, about, counter=int(counter), holds=holds)
        for worker, counter, holds, about in living
    }
    for worker, about in dead:
        if worker not in records:
            records[worker] = _record(now, worker, about, is_dead=True)
    return list(records.values())


def _record(
    now: int,
    worker: bytes,
    about: bytes,
    *,
    counter: int = 0,
    holds: int = 0,
    is_dead: bool = False,
) -> WorkerRecord:
    seen_at, _, said = about.partition(b" ")
    return WorkerRecord(
        worker=worker.decode(),
        counter=counter,
        holds=holds,
        about=_abouts.decode(said) if said else None,
        silent_s=float(max(0, now - int(seen_at))) if seen_at else 0.0,
        is_dead=is_dead,
    )
