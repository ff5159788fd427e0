"""Pictures that are drawn from what semel itself has: states.py from the table of states, timeline.py from
the record of a run.
"""
