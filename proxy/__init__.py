"""semel: every tool call happens once.

A request flows downward through these files:

    front/        what arrives: listener, addresses, requests read and replies written
    core/         what is decided: policy, canonical, identity, decide, intent, outcome, runs (pure)
    exchange.py   what is done: claim, send, settle, in that order, in one place
    store/        where it is kept: base (the seam), embedded, memory
    upstream/     the only outgoing I/O
    recovery.py   the same table, applied to what a dead process left behind

app.py wires them, cli/ starts them, observe.py tells metrics.py and log.py what happened.
"""

__version__ = "0.1.0"
