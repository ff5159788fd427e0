"""Is every line of the core held by a test? Each is broken, one change at a time, to see.

    mutants.py   where a module can be changed, and how: every place by a name that outlives its line number
    changes.py   what can become of one expression or statement: the table of operators
    zygote.py    a process that has collected the tests once, and forks for every mutant
    afresh.py    the same for what takes effect at import (tables, enums, defaults): imported after the fork
    rounds.py    which tests those meet, and in which order
    reached.py   which tests reach which lines, and how long each takes
    forks.py     a child process, its limits, and how it tells what it found
    run.py       all of it in order
    verdict.py   survivors against the list of those that have a reason; the score

`make mutation` runs it over proxy/core with tests/core. Why not a library: docs/why/mutation.md.
"""
