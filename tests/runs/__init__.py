"""Runs: what an agent asked before is given to it again."""
