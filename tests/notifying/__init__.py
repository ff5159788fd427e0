"""Notifications: what is told, signed, retried, dropped, and found again."""
