"""Discord. Shapes as in https://docs.discord.com/developers/resources, errors as in
https://docs.discord.com/developers/topics/opcodes-and-status-codes and …/topics/rate-limits."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

SDK = {"Authorization": "Bot one", "User-Agent": "DiscordBot (https://github.com/Rapptz/discord.py 2.7.1)"}
RESTARTED = {
    "Authorization": "Bot two",
    "User-Agent": "DiscordBot (https://github.com/Rapptz/discord.py 2.8.0)",
}
TOKEN = "3d89bb7572e0fb30d8128367b3b1b44fecd1726de135cbe28a41f8b2f777c372"


def error(status: int, code: int) -> Told:
    return Told(status=status, json={"code": code, "message": "…"})


BUSY = Told(
    status=429,
    json={"message": "You are being rate limited.", "retry_after": 64.57, "global": False},
    headers={"Retry-After": "65", "X-RateLimit-Scope": "user"},
)
REFUSED = (BUSY, error(401, 0), error(403, 50001))
OPEN = (error(502, 0), Told(status=500, text=""))

MESSAGE = Asked(
    path="/api/v10/channels/199737254929760256/messages",
    json={
        "content": "Hello, World!",
        "tts": False,
        "embeds": [{"title": "Hello, Embed!", "description": "This is an embedded message."}],
    },
    headers=SDK,
)
POSTED = Told(
    json={"id": "334385199974967042", "channel_id": "199737254929760256", "content": "Hello, World!"}
)
HOOK = Asked(path=f"/api/v10/webhooks/223704706495545344/{TOKEN}?wait=true", json={"content": "Hello"})
ANSWER = Asked(
    path=f"/api/v10/interactions/1/{TOKEN}/callback", json={"type": 4, "data": {"content": "Congrats"}}
)
CHANNEL = "/api/channels/199737254929760256/messages"

CASES = [
    Case(
        rule="message",
        request=MESSAGE,
        answer=POSTED,
        arguments={"path.channel": "199737254929760256", "body.content": "Hello, World!"},
        # discord.py draws a nonce for every message.
        alike=(
            MESSAGE.but(headers=RESTARTED),
            MESSAGE.but(json={"nonce": "14757223934193", "enforce_nonce": True}),
        ),
        different=(
            MESSAGE.but(json={"content": "Hello again"}),
            MESSAGE.but(path="/api/v10/channels/223704706495545344/messages"),
            MESSAGE.but(json={"message_reference": {"message_id": "334385199974967042"}}),
        ),
        refused=REFUSED,
        doubtful=OPEN,
        final=(error(400, 50006), error(404, 10003)),
        key="body nonce",
        beside={"enforce_nonce": True},
    ),
    Case(
        rule="open-dm",
        request=Asked(path="/api/v10/users/@me/channels", json={"recipient_id": "82198898841029460"}),
        safe=True,
        answer=Told(json={"id": "319674150115610528", "type": 1}),
        refused=(BUSY, error(400, 50007)),
    ),
    # A group is another one each time.
    Case(
        rule=None,
        request=Asked(path="/api/v10/users/@me/channels", json={"access_tokens": ["a", "b"], "nicks": {}}),
        answer=Told(json={"id": "319674150115610529", "type": 3}),
    ),
    Case(
        rule="typing",
        request=Asked(path="/api/v10/channels/199737254929760256/typing", headers=SDK),
        answer=Told(status=204),
        recorded=False,
    ),
    Case(
        rule="webhook",
        request=HOOK,
        answer=POSTED,
        arguments={"path.webhook": "223704706495545344", "body.content": "Hello"},
        alike=(HOOK.but(headers={"User-Agent": "python-requests/2.34.2"}),),
        different=(
            HOOK.but(json={"content": "Hello again"}),
            HOOK.but(path="/api/v10/webhooks/223704706495545344/another?wait=true"),
        ),
        refused=(BUSY,),
        doubtful=OPEN,
        final=(error(404, 10015),),
    ),
    Case(
        rule="webhook-message",
        request=Asked(
            method="PATCH",
            path=f"/api/v10/webhooks/223704706495545344/{TOKEN}/messages/334385199974967042",
            json={"content": "Hello, edited"},
        ),
        answer=POSTED,
        doubtful=OPEN,
    ),
    Case(
        rule="webhook-message",
        request=Asked(
            method="GET", path=f"/api/v10/webhooks/223704706495545344/{TOKEN}/messages/334385199974967042"
        ),
        safe=True,
        answer=POSTED,
    ),
    Case(
        rule="interaction",
        request=ANSWER,
        answer=Told(status=204),
        different=(ANSWER.but(path="/api/v10/interactions/1/another/callback"),),
        doubtful=OPEN,
        final=(error(400, 40060),),  # already acknowledged
    ),
    Case(
        rule="edit-message",
        request=Asked(
            method="PATCH",
            path="/api/v10/channels/199737254929760256/messages/334385199974967042",
            json={"content": "Hello, edited"},
            headers=SDK,
        ),
        answer=POSTED,
        arguments={"path.message": "334385199974967042"},
    ),
    Case(
        rule="reaction",
        request=Asked(
            method="PUT",
            path="/api/v10/channels/199737254929760256/messages/334385199974967042/reactions/%F0%9F%94%A5/@me",
            headers=SDK,
        ),
        answer=Told(status=204),
        final=(error(400, 10014),),
    ),
    Case(
        rule="thread",
        request=Asked(
            path="/api/v10/channels/199737254929760256/threads",
            json={"name": "plans", "type": 11},
            headers=SDK,
        ),
        answer=Told(status=201, json={"id": "41771983423143937", "name": "plans"}),
        doubtful=OPEN,
    ),
    Case(
        rule="message-thread",
        request=Asked(
            path="/api/v10/channels/199737254929760256/messages/334385199974967042/threads",
            json={"name": "plans"},
            headers=SDK,
        ),
        answer=Told(status=201, json={"id": "334385199974967042", "name": "plans"}),
        final=(error(400, 160004),),  # there is one already
    ),
    # ---- Without a version ----
    Case(
        rule="message-unversioned",
        request=MESSAGE.but(path=CHANNEL),
        answer=POSTED,
        arguments={"path.channel": "199737254929760256"},
        alike=(MESSAGE.but(path=CHANNEL, json={"nonce": "14757223934193", "enforce_nonce": True}),),
        different=(MESSAGE.but(path=CHANNEL, json={"content": "Hello again"}),),
        refused=REFUSED,
        doubtful=OPEN,
        key="body nonce",
        beside={"enforce_nonce": True},
    ),
    Case(
        rule="webhook-unversioned",
        request=HOOK.but(path=f"/api/webhooks/223704706495545344/{TOKEN}"),
        answer=Told(status=204),
        arguments={"path.webhook": "223704706495545344"},
        different=(HOOK.but(path="/api/webhooks/223704706495545344/another"),),
        refused=(BUSY,),
        doubtful=OPEN,
    ),
    Case(
        rule="webhook-unversioned",
        request=Asked(method="GET", path=f"/api/webhooks/223704706495545344/{TOKEN}"),
        safe=True,
        answer=Told(json={"id": "223704706495545344", "type": 1}),
    ),
    Case(
        rule="webhook-message-unversioned",
        request=HOOK.but(path=f"/api/webhooks/223704706495545344/{TOKEN}/slack"),
        answer=Told(text="ok"),
        arguments={"path.webhook": "223704706495545344"},
        different=(HOOK.but(path="/api/webhooks/223704706495545344/another/slack"),),
        doubtful=OPEN,
    ),
    Case(
        rule="interaction-unversioned",
        request=ANSWER.but(path=f"/api/interactions/1/{TOKEN}/callback"),
        answer=Told(status=204),
        different=(ANSWER.but(path="/api/interactions/1/another/callback"),),
        doubtful=OPEN,
    ),
]
