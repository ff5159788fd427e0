"""The same crash and the same twenty duplicates, against other projects that promise something alike.

    upstream.py    one plain HTTP server that acts, counts, and holds or loses its answer when told to
    scenarios.py   what is done to each, in the same words for all
    subjects.py    what it is done to: agents that use a library, or a server that is called
    rows.py        every project and setting that is tried, and what its documentation says of it
    asking.py      the agent, run in the project's own environment; with_*.py are its ways to call a tool
    semel.py, restate.py   the two that are servers
    installing.py  a virtual environment for each, under .peers/ at the top of the tree
    programs.py    processes that are started, and always ended
    page.py        docs/peers.md
    rating.py, rate_*.py   how many calls a second: programs that `make bench` asks (../peers_rates.py)

`make peers` runs all of it. Effects are counted by the upstream, never by the project that is tried.
"""
