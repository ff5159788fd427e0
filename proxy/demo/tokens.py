"""The tokens of compose.yaml: made at its first start, one for each who needs one, and no file in the
repository knows them.

In the directory afterwards: `semel.yaml` with the digests, `agent`, `operator` and `metrics` with a token
each. Another start finds them there and changes nothing. The operator's is printed every time, since a person
has to copy it; in earnest `semel token new` shows one once and nothing keeps it.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from proxy.settings import Role
from proxy.tokens import digest, new_token

TENANT = "demo"
SETTINGS = "semel.yaml"
# Prometheus runs as another user, and its token lets nobody make a call or decide; the rest is semel's own.
_OTHERS_MAY_READ = frozenset({Role.METRICS})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.tokens", description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    if not (directory / SETTINGS).exists():
        _make(directory)
    print(f"the operator's token: {(directory / Role.OPERATOR).read_text()}", flush=True)


def _make(directory: Path) -> None:
    """The settings come last: where they are, everything is."""
    directory.chmod(0o711)  # to be entered by those who know what they look for
    entries = []
    for role in Role:
        token = new_token()
        _write(directory / role, token, 0o444 if role in _OTHERS_MAY_READ else 0o400)
        entries.append({"sha256": digest(token), "tenant": TENANT, "role": role})
    _write(directory / SETTINGS, json.dumps({"auth": {"tokens": entries}}, indent=2), 0o400)


def _write(path: Path, text: str, mode: int) -> None:
    """Whole or not at all, and never readable for others in between."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask says
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


if __name__ == "__main__":
    main()
