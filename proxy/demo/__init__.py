"""What `semel demo` plays: toy APIs, agents that are killed at the worst moments, two acts; and traffic.

    stage.py    the processes and the directory, gone at the end whatever happens

Act one, a payment: without semel, with it, and with the proxy killed too.

    api.py      the toy: it charges cards and counts; only it says how often a card was charged
    agent.py    the agent: a plain script that has never heard of semel
    scene.py    what a scene is played with: the toy, the agent, semel
    act_one.py  the three scenes, and what each of them promises

Act two, an agent with a model and tools, killed until it finishes: by itself and behind `semel run`.

    trip.py     the agent, a plain script too
    tools.py    its tools, with books
    model.py    its model: it says what a script tells it; the real SDKs work with it (tests/sdk)
    dialects.py how OpenAI's and Anthropic's APIs are spoken
    turn.py     what the model was told, what it does next
    kills.py    when the agent is killed
    act_two.py  both sides, and what is promised

Everything runs on 127.0.0.1, on ports that the system chooses.

Behind compose.yaml, so that there is something to see in Grafana:

    traffic.py  agents at work, a few calls a second
    habits.py   what they do; caller.py is how they call
    toy.py      the tools and the model above, where a container can reach them
    tokens.py   the tokens of semel, Prometheus, the agents and the person at the page
    policies/   what semel does with their calls
"""
