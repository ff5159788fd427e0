"""`semel notify test`: send a notification of type "test" to whom `notify` names, and say what came back."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import time
from typing import TYPE_CHECKING

from proxy.cli.configuration import add_config_flag, settings_beside
from proxy.cli.output import DONE, REFUSED, add_json, print_json
from proxy.cli.parsing import examples
from proxy.errors import ConfigurationError

if TYPE_CHECKING:
    from proxy.notifying.posting import Reply
    from proxy.notifying.schema import Notify

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["delivered", "to", "id", "answer"],
    "additionalProperties": False,
    "properties": {
        "delivered": {"type": "boolean"},
        "to": {"type": "string"},
        "id": {"type": "string"},
        "answer": {"type": "string"},
    },
}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = commands.add_parser(
        "notify", help="try out notifications", description="Whom semel tells when a call needs a person."
    )
    below = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    command = below.add_parser(
        "test",
        help="send a test notification",
        description=__doc__,
        epilog=examples("semel notify test", "semel notify test --config deploy/semel.yaml --json"),
    )
    add_config_flag(command)
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from proxy.notifying.event import of_test
    from proxy.notifying.posting import Taken
    from proxy.notifying.signing import read_secret

    notify = settings_beside({}, options.config).notify
    if notify is None:
        raise ConfigurationError("Nobody is to be told: name somebody under 'notify' in semel.yaml.")
    secret = read_secret(notify.secret_env, os.environ)
    event = of_test(time.time(), secrets.token_bytes(16))
    reply = asyncio.run(_post(notify, secret, event.id, event.body(notify.public_url)))
    delivered = reply.taken is Taken.DELIVERED
    if options.json:
        print_json({"delivered": delivered, "to": str(notify.url), "id": event.id, "answer": reply.why})
    else:
        print(f"{notify.url}: {'delivered' if delivered else 'not delivered'}, {reply.why} ({event.id})")
    return DONE if delivered else REFUSED


async def _post(notify: Notify, secret: bytes, name: str, body: bytes) -> Reply:
    from proxy.notifying.posting import Letter, post
    from proxy.upstream.client import HttpUpstream

    client = HttpUpstream()
    try:
        return await post(client, Letter(notify.url, name, body, secret, notify.timeout), time.time())
    finally:
        await client.close()
