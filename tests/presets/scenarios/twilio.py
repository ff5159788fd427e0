"""Twilio. Shapes as in https://www.twilio.com/docs/messaging/api/message-resource and
https://www.twilio.com/docs/verify/api, errors as in https://www.twilio.com/docs/api/errors."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

ACCOUNT, OTHER_ACCOUNT = "AC" + "a" * 32, "AC" + "b" * 32
BASE = f"/2010-04-01/Accounts/{ACCOUNT}"
SDK = {"Authorization": "Basic QUM6b25l", "User-Agent": "twilio-python/9.13.0", "X-Twilio-Client": "python-9"}
RESTARTED = {"Authorization": "Basic QUM6dHdv", "User-Agent": "twilio-python/9.14.0"}


def error(status: int, code: int, message: str = "…") -> Told:
    more = f"https://www.twilio.com/docs/errors/{code}"
    return Told(status=status, json={"code": code, "message": message, "more_info": more, "status": status})


BUSY = error(429, 20429, "Too Many Requests")
REFUSED = (BUSY, error(401, 20003, "Authenticate"))
OPEN = (error(500, 20500, "Internal Server Error"), error(503, 20503), Told(status=504, text="<html></html>"))

MESSAGE = Asked(
    path=f"{BASE}/Messages.json",
    form=(("To", "+15558675310"), ("From", "+15017122661"), ("Body", "Hi there")),
    headers=SDK,
)
CALL = Asked(
    path=f"{BASE}/Calls.json",
    form=(("To", "+14155551212"), ("From", "+15017122661"), ("Url", "http://demo.twilio.com/docs/voice.xml")),
    headers=SDK,
)
VERIFY = Asked(
    path="/v2/Services/VAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/Verifications",
    form=(("To", "+15017122661"), ("Channel", "sms")),
    headers=SDK,
)
CHECK = Asked(
    path="/v2/Services/VAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/VerificationCheck",
    form=(("To", "+15017122661"), ("Code", "123456")),
    headers=SDK,
)

CASES = [
    Case(
        rule="message",
        request=MESSAGE,
        answer=Told(
            status=201,
            json={
                "sid": "SM" + "1" * 32,
                "account_sid": ACCOUNT,
                "to": "+15558675310",
                "from": "+15017122661",
                "body": "Hi there",
                "status": "queued",
                "direction": "outbound-api",
                "error_code": None,
                "price": None,
                "date_created": "Tue, 17 Nov 2026 09:00:00 +0000",
                "uri": f"{BASE}/Messages/SM{'1' * 32}.json",
            },
        ),
        arguments={"body.To": ["+15558675310"], "body.Body": ["Hi there"], "path.account": ACCOUNT},
        alike=(
            MESSAGE.but(headers=RESTARTED),
            MESSAGE.but(form=(("Body", "Hi there"), ("From", "+15017122661"), ("To", "+15558675310"))),
        ),
        different=(
            MESSAGE.but(form=(("To", "+15558675311"),)),
            MESSAGE.but(form=(("Body", "Hi again"),)),
            MESSAGE.but(form=(("MediaUrl", "https://example.com/a.png"),)),
            MESSAGE.but(path=f"/2010-04-01/Accounts/{OTHER_ACCOUNT}/Messages.json"),
        ),
        refused=(*REFUSED, error(400, 21610), error(400, 21611), error(400, 63038)),
        doubtful=OPEN,
        final=(error(400, 21211, "Invalid 'To' Phone Number"), error(404, 20404)),
    ),
    Case(
        rule="call",
        request=CALL,
        answer=Told(status=201, json={"sid": "CA" + "1" * 32, "status": "queued", "to": "+14155551212"}),
        arguments={"body.To": ["+14155551212"]},
        alike=(CALL.but(headers=RESTARTED),),
        different=(CALL.but(form=(("Url", "http://demo.twilio.com/docs/classic.mp3"),)),),
        refused=REFUSED,
        doubtful=OPEN,
        final=(error(400, 21215),),
    ),
    Case(
        rule="update-call",
        request=Asked(path=f"{BASE}/Calls/CA{'1' * 32}.json", form=(("Status", "completed"),), headers=SDK),
        answer=Told(json={"sid": "CA" + "1" * 32, "status": "completed"}),
        doubtful=OPEN,
    ),
    Case(
        rule="update-message",
        request=Asked(path=f"{BASE}/Messages/SM{'1' * 32}.json", form=(("Status", "canceled"),), headers=SDK),
        answer=Told(json={"sid": "SM" + "1" * 32, "status": "canceled"}),
    ),
    Case(
        rule="buy-number",
        request=Asked(
            path=f"{BASE}/IncomingPhoneNumbers.json", form=(("PhoneNumber", "+14155552344"),), headers=SDK
        ),
        answer=Told(status=201, json={"sid": "PN" + "1" * 32, "phone_number": "+14155552344"}),
        refused=REFUSED,
        doubtful=OPEN,
    ),
    Case(
        rule="verify",
        request=VERIFY,
        answer=Told(
            status=201,
            json={"sid": "VE" + "1" * 32, "to": "+15017122661", "channel": "sms", "status": "pending"},
        ),
        arguments={"body.To": ["+15017122661"]},
        alike=(VERIFY.but(headers=RESTARTED),),
        different=(
            VERIFY.but(form=(("To", "+15017122662"),)),
            VERIFY.but(form=(("CustomCode", "111111"),)),
            VERIFY.but(form=(("CustomCode", "222222"),)),
        ),
        refused=(BUSY, error(429, 60203, "Max send attempts reached")),
        doubtful=OPEN,
        final=(error(400, 60200, "Invalid parameter"),),
        kept=600,
    ),
    Case(
        rule="check-code",
        request=CHECK,
        answer=Told(json={"sid": "VE" + "1" * 32, "status": "approved", "valid": True}),
        different=(CHECK.but(form=(("Code", "654321"),)),),
        refused=(BUSY, error(429, 60202, "Max check attempts reached")),
        final=(Told(json={"sid": "VE" + "1" * 32, "status": "pending", "valid": False}), error(404, 20404)),
        kept=60,
    ),
    Case(
        rule="access-token",
        request=Asked(
            path="/v2/Services/VAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/AccessTokens",
            form=(("Identity", "ff483d1ff591898a9942916050d2ca3f"), ("FactorType", "push")),
            headers=SDK,
        ),
        answer=Told(status=201, json={"sid": "YK" + "1" * 32, "token": "eyJ6aXAi", "ttl": 60}),
        recorded=False,
    ),
    Case(
        rule="turn-token",
        request=Asked(path=f"{BASE}/Tokens.json", headers=SDK),
        answer=Told(status=201, json={"username": "dc2d2894", "password": "tE0g", "ttl": "86400"}),
        recorded=False,
    ),
    Case(
        rule=None,
        request=Asked(method="GET", path=f"{BASE}/Messages.json?To=%2B15558675310&PageSize=20", headers=SDK),
        safe=True,
        answer=Told(json={"messages": [], "page": 0, "page_size": 20}),
    ),
]
