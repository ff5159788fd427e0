"""Runs at work: what an agent asked before is given to it again, in order, and only new work goes out.

books.py      the runs that are being asked in, kept up to date
book.py       one run as this process knows it
asking.py     which recorded call an ask is, by the rules of core/
serving.py    from the record: replay, join, wait, hold
claiming.py   live: reserve a number, claim, send
shared.py     calls that a rule shares with the whole tenant
handover.py   how handing an answer on began and ended
uses.py       what must be durable before a caller is answered
"""
