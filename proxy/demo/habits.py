"""What the demo's agents do all day: they crash and come again, ask twice, lose answers, change their mind.

One function for each habit. All that it sends bears its own name, so that no play of a habit meets what
another one recorded, but where that is the point.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from proxy.demo.caller import Ask, Caller
from proxy.demo.tools import LOSE, SLOW

CITIES = ("Ulm", "Bonn", "Graz", "Lyon", "Bari", "Linz", "Gent", "Brno")
# What the model is told with every question: it is paid for by the word.
BRIEFING = "You book trips for people who are short of time. " * 20
# A start of the agent dies half of the time; nobody is that unlucky for ever.
MOST_CRASHES = 3
# The fifth replay of one call within a minute looks like a loop.
LOOKS = 6


@dataclass(frozen=True, slots=True)
class Agent:
    """One play of a habit. `notes` are shared by all: how far the one refund has come."""

    name: str
    caller: Caller
    chance: random.Random
    notes: Counter[str]

    async def ask(self, method: str, path: str, body: object = None, **more: str) -> str:
        """What semel did, or the problem that it gave."""
        heard = await self.caller.call(Ask(method, path, body, **more))
        return heard.problem or heard.semel

    def order(self, usd: float) -> dict[str, object]:
        return {"order": self.name, "card": "card-7", "usd": usd}


Step = tuple[str, str, object]


def _thought(question: str) -> Step:
    asked = {
        "model": "gpt-4.1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": BRIEFING}, {"role": "user", "content": question}],
    }
    return "POST", "/model/v1/chat/completions", asked


async def book_a_trip(agent: Agent) -> None:
    """An agent with a model and tools. It dies on the way, is started again, and meets what it had."""
    city = agent.chance.choice(CITIES)
    steps: tuple[Step, ...] = (
        _thought(f"Find a train to {city}."),
        ("GET", f"/search/search?q=trains+to+{city}", None),
        _thought(f"There is a train to {city} at nine. {BRIEFING}"),
        ("POST", "/payments/charges", agent.order(49.0)),
        ("POST", "/mail/emails", {"to": "ann@example.com", "ticket": agent.name}),
    )
    for attempt in range(1, MOST_CRASHES + 2):
        dies = agent.chance.random() < 0.5 and attempt <= MOST_CRASHES
        done = agent.chance.randint(1, len(steps) - 1) if dies else len(steps)
        for method, path, body in steps[:done]:
            await agent.ask(method, path, body, run=agent.name, attempt=str(attempt))
        if not dies:
            return


async def look_something_up(agent: Agent) -> None:
    """The same few questions, by everybody: most are answered from the cache."""
    for city in agent.chance.sample(CITIES, 3):
        await agent.ask("GET", f"/search/search?q=hotels+in+{city}")


async def lose_patience(agent: Agent) -> None:
    """A client asks again while its payment is under way: the second one joins the first."""
    await agent.caller.twice_at_once(Ask("POST", "/payments/charges", agent.order(12.0), mishap=SLOW))


async def deliver_twice(agent: Agent) -> None:
    """A queue hands out one job two times, one after the other: the second gets the first one's answer."""
    mail = {"to": "bob@example.com", "about": agent.name}
    for _ in range(2):
        await agent.ask("POST", "/mail/emails", mail, key=agent.name)


async def meet_busy_apis(agent: Agent) -> None:
    """Refused for now, and then not: nothing was done the first time, so the second time is sent."""
    for mishap in ("429", ""):
        await agent.ask("POST", "/payments/charges", agent.order(5.0), mishap=mishap)
    for mishap in ("429", ""):
        await agent.ask("GET", f"/search/search?q={agent.name}", mishap=mishap)
    method, path, asked = _thought("What is the weather like?")
    for mishap in ("503", ""):  # where there are many good answers beside: no alert need fire for long
        await agent.ask(method, path, asked, run=agent.name, attempt="1", mishap=mishap)


async def look_around(agent: Agent) -> None:
    """Reads outside of runs are passed on, and nothing of them is kept."""
    await agent.ask("GET", "/payments/books")


async def overstep(agent: Agent) -> None:
    """What no agent may do."""
    await agent.ask("DELETE", f"/payments/customers/{agent.name}")


async def write_notes(agent: Agent) -> None:
    """Under a rule that only looks on: both go out, and its figures say that the second need not have."""
    for _ in range(2):
        await agent.ask("POST", "/mail/notes", {"note": agent.name})


async def change_its_mind(agent: Agent) -> None:
    """It paid, crashed, and pays something else: held, because the record says otherwise."""
    for attempt, usd in (("1", 20.0), ("2", 21.0)):
        await agent.ask("POST", "/payments/charges", agent.order(usd), run=agent.name, attempt=attempt)


async def wait_in_a_loop(agent: Agent) -> None:
    """For an order that is recorded, and so does not change."""
    for _ in range(LOOKS):
        await agent.ask("GET", f"/payments/orders?id={agent.name}", run=agent.name, attempt="1")


async def ask_for_much(agent: Agent) -> None:
    """The same refund until a person has permitted it and it is made; then the next one."""
    asked = {"refund": agent.notes["refunds"], "of": agent.name.rsplit("-", 1)[0], "usd": 250}
    if await agent.ask("POST", "/payments/refunds", asked) in ("executed", "denied"):
        agent.notes["refunds"] += 1


async def lose_an_answer(agent: Agent) -> None:
    """The card is charged and the answer never comes. Asked again it is not sent again: a person decides."""
    for mishap in (LOSE, ""):
        await agent.ask("POST", "/payments/charges", agent.order(99.0), mishap=mishap)


class Habit(NamedTuple):
    play: Callable[[Agent], Awaitable[None]]
    weight: int
    every: float = 0.0  # seconds between two of them, at least


HABITS = (
    Habit(book_a_trip, 10),
    Habit(look_something_up, 4),
    Habit(lose_patience, 3),
    Habit(deliver_twice, 3),
    Habit(meet_busy_apis, 1),
    Habit(look_around, 1),
    Habit(overstep, 1, every=20),
    Habit(write_notes, 1, every=20),
    Habit(change_its_mind, 1, every=90),
    Habit(wait_in_a_loop, 1, every=120),
    # What waits for a person grows by one refund at a time, and by six payments in an hour.
    Habit(ask_for_much, 2, every=30),
    Habit(lose_an_answer, 1, every=600),
)


def day(chance: random.Random, now: Callable[[], float]) -> Iterator[Habit]:
    """Each once, so that all there is to see is there soon; then by chance."""
    last: dict[Habit, float] = {}
    for habit in HABITS:
        last[habit] = now()
        yield habit
    while True:
        due = [habit for habit in HABITS if now() - last[habit] >= habit.every]
        (habit,) = chance.choices(due, [one.weight for one in due])
        last[habit] = now()
        yield habit
