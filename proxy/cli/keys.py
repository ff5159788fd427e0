"""`semel keys`: make, list, rotate and drop the keys that a record is encrypted with.

A new key is put first in the file, and is used from then on; rotating encrypts everything with the first one,
beside running proxies. It can be broken off and begun again. A key that something needs is not dropped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.cli.key_files import add_key, drop_key
from proxy.cli.key_records import encrypted
from proxy.cli.output import DONE, REFUSED, Refused, add_json, print_json, warn
from proxy.cli.parsing import examples
from proxy.cli.reach import add_store_flags, settings_of
from proxy.errors import ConfigurationError
from proxy.store.keyring import VARIABLE, GivenKeys, new_key

if TYPE_CHECKING:
    from proxy.rotating import Rotated

_KEY = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
SCHEMA = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"id": _KEY, "file": {"type": "string"}, "key": {"type": "string"}},
            "required": ["id"],
            "minProperties": 2,
            "maxProperties": 2,
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "key": _KEY,
                "calls": {"type": "integer", "minimum": 0},
                "resealed": {"type": "integer", "minimum": 0},
                "left": {"type": "integer", "minimum": 0},
                "unreadable": {"type": "object", "additionalProperties": {"type": "string"}},
                "to_do": {"type": "string"},
            },
            "required": ["key", "calls", "resealed", "left", "unreadable", "to_do"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "keys": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string", "pattern": "^([0-9a-f]{16})?$"},
                            "use": {"enum": ["seals", "opens", "missing", "not encrypted"]},
                            "calls": {"type": "integer", "minimum": 0},
                        },
                        "required": ["id", "use", "calls"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["keys"],
            "additionalProperties": False,
        },
    ]
}
_CLEAR_LINE = "\r\x1b[K"
SOON = 0.1  # seconds between two signs of progress


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = commands.add_parser(
        "keys", help="keys of an encrypted record", description="The keys that a record is encrypted with."
    )
    below = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = below.add_parser(
        "new",
        help="make a key",
        description="Make a key: print it, or put it first into a file, which is made if it is not there.",
        epilog=examples("semel keys new", "semel keys new --key-file /etc/semel/keys"),
    )
    new.add_argument("--key-file", metavar="F", type=Path, help="put it there instead of printing it")
    new.set_defaults(run=_new)
    listed = below.add_parser(
        "list",
        help="which keys there are",
        description="Which keys there are, and how many calls are encrypted with each.",
        epilog=examples("semel keys list", "semel keys list --state-dir /var/lib/semel --json"),
    )
    rotate = below.add_parser(
        "rotate",
        help="encrypt everything with the first key",
        description="Encrypt everything with the first key. Goes on beside running proxies, and can be "
        "broken off and begun again: it goes on where it was. Also encrypts a record that is not yet.",
        epilog=examples("semel keys rotate --new", "semel keys rotate --store postgres://… --json"),
    )
    rotate.add_argument("--new", action="store_true", help="make a new key first, in the key file")
    drop = below.add_parser(
        "drop",
        help="remove a key from the file",
        description="Remove a key that nothing is encrypted with any more from the key file.",
        epilog=examples("semel keys drop 0123456789abcdef"),
    )
    drop.add_argument("id", metavar="ID", help="as `semel keys list` shows it")
    for command, run in ((listed, _list), (rotate, _rotate), (drop, _drop)):
        add_store_flags(command)
        command.set_defaults(run=run)
    for command in (new, listed, rotate, drop):
        add_json(command)


def _new(options: argparse.Namespace) -> int:
    if options.key_file is None:
        key = new_key()
        if options.json:
            print_json({"id": GivenKeys(key).current().name, "key": key})
        else:
            print(key)
        return DONE
    name, first = add_key(options.key_file)
    if options.json:
        print_json({"id": name, "file": str(options.key_file)})
        return DONE
    print(f"{options.key_file}: key {name}, {'the first' if first else 'before the others'}")
    if first:
        print(f"Keep a copy of it elsewhere: without it the record cannot be read. Name it in semel.yaml:\n\n"
              f"encryption: {{key_file: {options.key_file}}}")  # fmt: skip
    return DONE


def _list(options: argparse.Namespace) -> int:
    import asyncio

    rows = asyncio.run(_listed(options))
    if options.json:
        print_json({"keys": rows})
        return DONE
    for row in rows:
        print(f"{row['id'] or '-':16}  {row['use']:13}  calls: {row['calls']:,}")
    return DONE


async def _listed(options: argparse.Namespace) -> list[dict[str, object]]:
    from collections import Counter

    from proxy.rotating import counted_by_key

    async with encrypted(options) as stores:
        counts: Counter[str] = sum([Counter(await counted_by_key(store)) for store in stores], Counter())
        keys = stores[0].keys
        uses = dict.fromkeys([key.name for key in keys.ring], "opens") | {keys.current().name: "seals"}
        return [
            {"id": name, "use": uses.get(name, "missing" if name else "not encrypted"), "calls": counts[name]}
            for name in dict.fromkeys((*uses, *sorted(counts)))
        ]


def _rotate(options: argparse.Namespace) -> int:
    import asyncio

    if options.new:
        name, _ = add_key(_key_file(options), make=False)
        warn(f"the new key is {name}: keep a copy of {_key_file(options)}")
    rotated = asyncio.run(_rotated(options))
    done = not rotated.left and not rotated.unreadable
    if options.json:
        fields = ("key", "calls", "resealed", "left", "unreadable", "to_do")
        print_json({name: getattr(rotated, name) for name in fields})
    else:
        print(f"{rotated.resealed:,} of {rotated.calls:,} calls encrypted anew with the key {rotated.key}")
    for call, why in list(rotated.unreadable.items())[:10]:
        warn(f"call {call} stays as it is: {why}")
    if rotated.to_do:
        warn(rotated.to_do)
    if rotated.left:
        warn(
            f"{rotated.left:,} calls were written with another key meanwhile: a semel is running with other "
            "keys. Give it the same, and rotate again."
        )
    return DONE if done else REFUSED


async def _rotated(options: argparse.Namespace) -> Rotated:
    from proxy.clock import SystemClock
    from proxy.rotating import Rotation, together

    progress = _Progress()
    try:
        async with encrypted(options, begin=True) as stores:
            return together(
                [await Rotation(store, SystemClock(), progress.show).rotate() for store in stores]
            )
    finally:
        progress.clear()


def _drop(options: argparse.Namespace) -> int:
    import asyncio

    path = _key_file(options)
    asyncio.run(_is_needless(options, path))
    drop_key(path, options.id)
    if options.json:
        print_json({"id": options.id, "file": str(path)})
    else:
        print(f"{path}: key {options.id} removed")
    return DONE


async def _is_needless(options: argparse.Namespace, path: Path) -> None:
    """Raises Refused if it is not."""
    from proxy.rotating import counted_by_key
    from proxy.store.keystone import sealed_with

    async with encrypted(options) as stores:
        name, keys = options.id, stores[0].keys
        if name not in [key.name for key in keys.ring]:
            raise Refused(f"There is no key {name} in {path}: `semel keys list` shows those that are.")
        if name == keys.current().name:
            raise Refused(f"{name} is the first key of {path}, with which semel encrypts. Put another first.")
        calls = sum([(await counted_by_key(store)).get(name, 0) for store in stores])
        if calls or name in [sealed_with(store.inner.secret).hex() for store in stores]:
            raise Refused(
                f"The record needs the key {name} ({calls:,} calls): run `semel keys rotate` first. Nothing "
                "was changed."
            )


def _key_file(options: argparse.Namespace) -> Path:
    encryption = settings_of(options).encryption
    if encryption is None or not encryption.key_file:
        raise ConfigurationError(
            "There is no key file to change: name one with `encryption: {key_file: F}` in semel.yaml, or "
            f"with SEMEL_ENCRYPTION_KEY_FILE. Keys given by {VARIABLE} are changed where that is set."
        )
    return Path(encryption.key_file)


class _Progress:
    """One line on a terminal, written over and over and gone at the end; elsewhere nothing."""

    def __init__(self) -> None:
        self._next = 0.0
        self._shown = False

    def show(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next and sys.stderr.isatty():
            self._next = time.monotonic() + SOON
            print(f"{_CLEAR_LINE}{done:,} of {total:,} calls", end="", file=sys.stderr, flush=True)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)
