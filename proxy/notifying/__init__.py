"""Somebody is told when a call needs a person: a signed POST, retried, and never in a call's way.

    schema.py     what semel.yaml says of it
    event.py      what is told, and under which name: the same thing has the same one for ever (pure)
    signing.py    the signature, by the Standard Webhooks specification (pure)
    posting.py    one POST, and what came back
    hook.py       the observer: what waits to be told, when it is tried again, when it is given up
    standing.py   what stands in the record and was not told: after a crash, or when too much came at once

That somebody was told is a line of the call's history. So a process that dies between doubt and POST loses
nothing: another finds the call without that line.
"""
