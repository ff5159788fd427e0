"""The pure core: it decides and never does. No I/O, no clock, no event loop.

tests/test_architecture.py checks what may be imported here.
"""
