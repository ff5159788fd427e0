"""How many files this process may have open, against what it is configured to need.

A connection of a caller may need one more to its upstream, and the usual limit of 1024 is far below what the
configuration promises: connections would be refused, and worse, the store could not open its files.
"""

from __future__ import annotations

import resource

# The database, blobs being read and written, logs, libraries; generous, because it costs nothing.
BESIDES = 256


def allow_open_files(connections: int) -> str:
    """Raise the soft limit as far as needed and allowed. What a person should know, if it is not enough."""
    wanted = 2 * connections + BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _covers(soft, wanted):
        return ""
    allowed = wanted if _covers(hard, wanted) else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):  # some systems have a lower limit than they say
        allowed = soft
    if allowed >= wanted:
        return ""
    return (
        f"semel may open {allowed} files, and limits.connections: {connections} can need {wanted}. Raise the "
        f"limit (ulimit -n {wanted}, or LimitNOFILE={wanted} in a systemd unit), or set limits.connections "
        f"to {max(1, (allowed - BESIDES) // 2)}."
    )


def _covers(limit: int, wanted: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= wanted
