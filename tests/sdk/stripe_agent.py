"""An agent that takes a payment: `python -m tests.sdk.stripe_agent BASE MARK`.

With DIES=1 in its environment it is killed when the payment is made, before it noted that. Otherwise it
prints the payment's id. It knows nothing of semel, but for the certificate that this SDK has to be told.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import stripe


def main() -> None:
    base, mark = sys.argv[1:]
    stripe.enable_telemetry = False
    stripe.ca_bundle_path = os.environ.get("SSL_CERT_FILE") or stripe.ca_bundle_path
    client = stripe.StripeClient("sk_test_1", base_addresses={"api": base}, max_network_retries=2)
    made = client.v1.payment_intents.create(
        {
            "amount": 2000,
            "currency": "usd",
            "payment_method": "pm_card_visa",
            "confirm": True,
            "description": mark,
        }
    )
    if os.environ.get("DIES"):
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps(made.id))


if __name__ == "__main__":
    main()
