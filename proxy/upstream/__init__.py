"""The only outgoing I/O. One request, written once, by a client that has no retry in it to turn off."""
