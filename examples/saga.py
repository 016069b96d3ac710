"""A saga: if a step fails, clean-up tasks cancel the bookings. A notification runs in any case.

With `on_failure="continue"`, running tasks finish, so the clean-up knows all bookings. Use
`runnel rerun @last --all` to book again: without --all, a rerun would reuse cancelled bookings.

    $ runnel run examples/saga.py --input city=Rome
    [
      "flight to Rome",
      "hotel in Rome"
    ]
    $ runnel run examples/saga.py --input city=Atlantis
    …
    trip failed in …: NodeFailed: node 'book_hotel' failed: ValueError: no room in Atlantis
    …
    $ runnel show @last
    …
    ✓ book_flight  COMPLETED  …  1         "flight to Atlantis"
    ✗ book_hotel   FAILED     …  1         ValueError: no room in Atlantis
    ↷ pay          SKIPPED … dependency failed
    ✓ cancel       COMPLETED  …  1         "flight to Atlantis cancelled"
    ↷ cancel_2     SKIPPED … nothing to cancel
    ✓ notify       COMPLETED  …  1         "Atlantis: nothing booked"
    …
"""

from typing import Any

from runnel import Skip, task, workflow


@task
def book_flight(city: str) -> str:
    return f"flight to {city}"


@task
def book_hotel(city: str) -> str:
    if city == "Atlantis":
        raise ValueError(f"no room in {city}")
    return f"hotel in {city}"


@task
def pay(flight: str, hotel: str) -> list[str]:
    return [flight, hotel]


@task(run_when="all_settled")
def cancel(booking: str | None, paid: list[str] | None) -> str:
    if booking is None or paid is not None:
        raise Skip("nothing to cancel")
    return f"{booking} cancelled"


@task(run_when="all_settled")
def notify(city: str, paid: list[str] | None) -> str:
    return f"{city}: {'all booked' if paid else 'nothing booked'}"


@workflow(on_failure="continue")
def trip(city: str) -> Any:
    flight, hotel = book_flight(city), book_hotel(city)
    paid = pay(flight, hotel)
    cancel(flight, paid)
    cancel(hotel, paid)
    notify(city, paid)
    return paid
