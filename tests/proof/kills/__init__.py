"""The kill soak: agents, proxies, stores and upstreams are real processes, and any of them dies at any time.

    script.py    what an agent does, step by step; drawn from the seed, so that every start does the same
    agent.py     the agent: a process that writes down what it was given before it goes on
    world.py     the upstream: a process that writes down what it does before it does it; books.py reads that
    wire.py      the relay between two of them: cut, reset, stalled, half closed, sliced
    draw.py      which harm comes to whom, in which order; from the seed
    stage.py     the processes of a round: started, harmed, started again
    agents.py    the agents of a round, started again until they have finished
    clerk.py     the operator: looks at the upstream's books and settles some of what is in doubt
    record.py    what the store holds in the end
    checking.py  compares the three: what the upstream did, what the record says, what agents saw
    story.py     the story of one step, for whoever has to find out why a check failed
    campaign.py  rounds of up to a hundred cycles, each on a record of its own; what came of them, in figures
    planted.py   a semel with a defect, to see that the checks find it

A *cycle* is one harm: a signal given to one process, or a fault of one relay, while calls are under way.
Everything random comes from one seed: it is printed, and TEST_SEED repeats it. Processes take the time they
take, so a repeated round is not the same to the microsecond: the same harm comes to the same players in the
same order, and the agents do the same steps.
"""
