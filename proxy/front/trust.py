"""What to set so that a client trusts semel's authority. Most take a variable; some take nothing but code."""

from __future__ import annotations

from pathlib import Path

_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE")
# SDKs that bring their own list of authorities and look at no variable.
_IN_CODE = {"api.stripe.com": 'stripe.ca_bundle_path = os.environ["SSL_CERT_FILE"]'}


def advice(host: str, certificate: Path) -> str:
    told = f"the client does not seem to trust semel: set {', '.join(_VARIABLES)} to {certificate}"
    line = _IN_CODE.get(host)
    return told if line is None else f"{told}, and add to its code: {line}"
