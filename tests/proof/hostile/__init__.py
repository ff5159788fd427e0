"""What nobody should send, and what nobody should answer.

corpus.py     what an entry is; framing.py, targets.py, words.py are requests, answers.py are answers
reference.py  a second reading of the same bytes, strict, that semel's is held against
scene.py      a real semel process before an upstream that echoes, and its memory
playing.py    an entry on a connection, cut up or not, with an innocent request behind it
fuzz.py       for as long as you like; fuzz_canonical.py and fuzz_listener.py are what is fuzzed,
                  strict_json.py a second reading of JSON; found/ has what they found once
    slow.py       sockets that only hold their place, and a flood
"""
