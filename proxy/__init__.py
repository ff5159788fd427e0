"""semel: every tool call happens once.

A request flows downward through these files:

    front/         what arrives: connections, addresses, requests read and named, replies written
                   (plans.py: what a head decides, once for all that have the same; express.py: plain calls
                   by the shortest way)
    core/          what is decided: matching, canonical, identity, decide, intent, outcome, runs (pure)
    asking.py      what the front hands to the exchange, and what it gets back
    exchange.py    what becomes of a call that is asked for: replayed, joined, held, or sent
    runs/          the same inside a run: what an agent got before it gets again, in order
    flying.py      what is done: claim, send, settle, in that order; intended.py is what is written down
                   before, carrying.py sends it, outgoing.py is what goes out in the end, landing.py settles
                   it; nonstop.py is the same for a plain call that goes by the book, without a task
    doubts.py      calls in doubt that are asked for again: sent again under their key, or asked about
    flight.py      one call on its way; stream.py captures its answer, judge.py says what it means
    ledger.py      claims and settlements that survive a store in trouble; plain_ledger.py: without waiting;
                   drafting.py is what is claimed, and taken out of a budget; answers.py, refusals.py,
                   overspent.py
    upstream/      the only outgoing I/O
    tools/         functions of the agent's own: an upstream without a network, handed out and reported on
    bridge/        `semel mcp`: an MCP server over stdio, its calls through all of this
    store/         where it is kept: base (the seam), embedded, postgres, redis, memory; opening.py chooses
                   among them, sealed.py encrypts any of them, archive.py is the seam of copying
    recovery.py    the same table, applied to what a dead process left behind
    operator.py    the same table, applied by a person; admin/ is that person's desk, over HTTP or beside it
    explaining/    why a call has its name, and what would make two of them one
    notifying/     somebody is told when a call needs a person: an observer, and a task that POSTs
    collecting.py  what is past its time goes, a little at a time
    rotating.py    a whole record comes under a new key, while others work with it
    shadow/        calls that are only looked on at: all of this once more, beside them, on its own record

app.py wires them (wiring.py: what works on one record; keeping.py: where that is) and cli/ starts them;
siblings.py is what several workers know of each other; demo/ is what `semel demo` plays, and the traffic of
compose.yaml. settings.py, policy_file/ and reload.py read what people wrote; observe.py tells metrics/,
log.py and spans.py what happened; faults.py is where tests break things; giving_way.py is for threads that
write for others.
"""

__version__ = "0.1.0"
