"""What AWS's SDKs add to every try."""

from __future__ import annotations


def signed(service: str, at: str, signature: str) -> dict[str, str]:
    """What every try signs anew: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html"""
    scope = f"AKIAIOSFODNN7EXAMPLE/{at[:8]}/us-east-1/{service}/aws4_request"
    return {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, "
        f"Signature={signature}",
        "X-Amz-Date": at,
        "X-Amz-Security-Token": f"session-{signature}",
        "amz-sdk-invocation-id": f"0fd1e6ea-{signature}",
        "amz-sdk-request": "attempt=1",
    }
