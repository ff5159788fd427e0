"""Tools that are functions of the agent's own: semel hands a call out, and is told what came of it.

    errand.py     one such call, from its claim until somebody has it in hand
    workshop.py   calls that are in somebody's hands: an upstream without a network
    reports.py    what those people say, here or in another process: done, not done, still at it

The exchange knows nothing of it: a call is claimed before it is handed out, and settled by the same table as
every other. Who falls silent leaves a doubt.
"""
