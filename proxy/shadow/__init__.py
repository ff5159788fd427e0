"""Looking on: what semel would have done with calls that a rule only shadows, by the very machinery.

Such a call is forwarded as if nobody stood between. Beside it, and never in its way, the same claims, flights
and runs go on over a record of their own, and are told that their send got what the live one got.

turns.py      whose judgement waits for whose
tape.py       what the live exchange got, heard while it is handed on, and the upstream that only repeats it
record.py     the record of its own, opened when it is needed
judging.py    one judgement beside each call, bounded and never in the way
making.py     all of it put together
counting.py   what would have been, told to metrics and log
"""
