"""Whether a Redis server keeps what it acknowledges: a rule over its settings, and how they are read.

Kept means: on its disk before the answer, and never thrown out for want of room. What cannot be read counts
as unsafe. Then calls with effects are refused (redis_calls.py), because a lost intent is a second send.
"""

from __future__ import annotations

from collections.abc import Mapping

import hiredis

from proxy.store.durability import Durability
from proxy.store.redis_wire import Reply, Wire

# Setting, what it must be, what else happens.
REQUIRED = (
    ("appendonly", "yes", "a restart loses everything since the last snapshot"),
    ("appendfsync", "always", "a power cut loses what was acknowledged last"),
    ("no-appendfsync-on-rewrite", "no", "while the log is rewritten nothing is synced to the disk"),
    ("maxmemory-policy", "noeviction", "the server throws out intents when its memory is full"),
)
HOW = "Set it on the server (CONFIG SET, and in its configuration file)"
OTHERWISE = "or say `durability: best-effort` to send calls with effects all the same"


def why_unsafe(settings: Mapping[str, str | None], role: str) -> str | None:
    """None: safe. The message names the first setting that is wrong, what it means, and what to do."""
    for name, wanted, otherwise in REQUIRED:
        found = settings.get(name)
        if found is None:
            return (
                f"calls with effects are refused: the Redis setting {name} cannot be read (CONFIG GET is "
                f"forbidden or renamed), so it counts as unsafe. Allow the user CONFIG GET, {OTHERWISE}."
            )
        if found != wanted:
            return (
                f"calls with effects are refused: the Redis setting {name} is {found!r}, and so {otherwise}. "
                f"{HOW} to {wanted!r}, {OTHERWISE}."
            )
    if role != "master":
        return (
            f"calls with effects are refused: the Redis server's role is {role!r} (setting replicaof), and a "
            "replica does not keep what is written to it. Name the primary in the store's URL."
        )
    return None


def told_as(why: str, durability: Durability) -> str:
    """For the log: what is done about it."""
    if durability is Durability.STRICT:
        return why
    made = why.replace("calls with effects are refused:", "calls with effects are made all the same:")
    return made.replace(f", {OTHERWISE}", "")


async def read_safety(wire: Wire) -> str | None:
    names = [name for name, _, _ in REQUIRED]
    asked = [wire.ask("CONFIG", "GET", name) for name in names]
    replication = wire.ask("INFO", "replication")
    settings = {name: _setting(await reply) for name, reply in zip(names, asked, strict=True)}
    return why_unsafe(settings, _role(await replication))


def _setting(reply: Reply) -> str | None:
    if isinstance(reply, hiredis.ReplyError) or not isinstance(reply, list) or len(reply) != 2:
        return None
    return bytes(reply[1]).decode(errors="replace")


def _role(reply: Reply) -> str:
    if isinstance(reply, bytes):
        for line in reply.decode(errors="replace").splitlines():
            if line.startswith("role:"):
                return line.removeprefix("role:")
    return "unknown"
