"""`semel mcp`: an MCP server over stdio, with the record between it and its client.

    pipes.py     lines in and out: one message each
    server.py    the server's process: an upstream without a network, and whatever else it says
    calls.py     tools/call, asked of the exchange like any other call
    room.py      how much of that at once
    session.py   who says what to whom, until one of them ends
    running.py   the record is opened, the server started, and everything ended in order

Only calls of tools are looked at. Everything else goes by, byte for byte.
"""
