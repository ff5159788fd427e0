"""What `semel demo` plays: a toy payments API, an agent that is killed at the worst moment, three acts.

    api.py      the toy: it charges cards and counts; only it says how often a card was charged
    agent.py    the agent: a plain script that has never heard of semel
    stage.py    the processes and the directory, gone at the end whatever happens
    scene.py    what an act is played with: the toy, the agent, semel
    acts.py     the three acts, and what each of them promises

Beside it, for tests and demonstrations with real SDKs, a model that says what a script tells it:

    model.py     the API, its books, its failures on demand
    dialects.py  how OpenAI's and Anthropic's APIs are spoken
    turn.py      what it was told, what it does next

Everything runs on 127.0.0.1, on ports that the system chooses.
"""
