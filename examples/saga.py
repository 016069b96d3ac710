"""A saga: what was booked before something failed is given back, and somebody is told in any case.

$ runnel run examples/saga.py --input city=Rome
[
  "flight to Rome",
  "hotel in Rome",
  "paid"
]
$ runnel run examples/saga.py --input city=Atlantis
…
trip failed in …: NodeFailed: node 'pay' failed: ValueError: the card was refused
…
$ runnel show @last
…
✓ book_flight    COMPLETED  …  1         "flight to Atlantis"
✓ book_hotel     COMPLETED  …  1         "hotel in Atlantis"
✗ pay            FAILED     …  1         ValueError: the card was refused
✓ cancel_flight  COMPLETED  …  1         "flight to Atlantis cancelled"
✓ cancel_hotel   COMPLETED  …  1         "hotel in Atlantis cancelled"
✓ tell           COMPLETED  …  1         "Atlantis: nothing booked"
…
"""

from typing import Any

from runnel import task, workflow


@task
def book_flight(city: str) -> str:
    return f"flight to {city}"


@task
def book_hotel(city: str) -> str:
    return f"hotel in {city}"


@task
def pay(flight: str, hotel: str) -> list[str]:
    if "Atlantis" in hotel:
        raise ValueError("the card was refused")
    return [flight, hotel, "paid"]


@task(run_when="one_failed")
def cancel_flight(flight: str) -> str:
    return f"{flight} cancelled"


@task(run_when="one_failed")
def cancel_hotel(hotel: str) -> str:
    return f"{hotel} cancelled"


@task(run_when="all_settled")
def tell(city: str, paid: list[str] | None) -> str:
    return f"{city}: {'all booked' if paid else 'nothing booked'}"


@workflow
def trip(city: str) -> Any:
    flight, hotel = book_flight(city), book_hotel(city)
    paid = pay(flight, hotel)
    cancel_flight.after(paid)(flight)
    cancel_hotel.after(paid)(hotel)
    tell(city, paid)
    return paid
