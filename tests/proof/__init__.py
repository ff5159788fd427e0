"""The proof: semel broken on purpose, in every way that we could think of, by whoever wants to try.

    kills/       real agents, proxies, stores and upstreams, killed, stopped and cut off at random
    simulation/  the shipping exchange under a scheduler that decides everything, a seed at a time
    hostile/     requests that no client should send, bombs, slow sockets, fuzzing
    mutation/    is every line of the core held by a test? Broken one at a time to see

`make test` runs the short versions, `make soak` the long ones. What a long run did is appended to the file
named by SEMEL_REPORT (report.py); docs/proof.md is written from it.
"""
