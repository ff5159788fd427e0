"""The shipping exchange, decide, intent and runs, under a scheduler that decides everything.

    fate.py       the seed: everything that is left to chance, and what happened, in order
    links.py      how a process stands to the world: slow, cut off, paused, dead; who is taken for dead
    record.py     the store behind such a link; every write is checked against the table of states
    upstream.py   an upstream that knows what it did, and the laws of sending
    asking.py     four kinds of calls, outside runs and in them
    agents.py     those who ask: callers, agents that crash and begin again, one that is healthy
    scene.py      the record, the proxies on it, those who ask, and what they were given
    people.py     who settles doubts, permits and refuses
    faults.py     what befalls them all
    history.py    one history: all of this in some order, an end, and what must hold in it
    planted.py    five defects, put into the shipping code to see that they are found

Only the store, the upstream, the network and the clock are modelled. Time is virtual
(tests/exchange/virtual_time.py): a history of an hour takes milliseconds and is the same each time.

    python -m tests.proof.simulation --seed 7          one history, told line by line
    python -m tests.proof.simulation --seeds 100000    as many, and whether all held
"""
