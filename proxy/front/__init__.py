"""What arrives: connections, addresses, requests read, replies written. Nothing is decided here."""
