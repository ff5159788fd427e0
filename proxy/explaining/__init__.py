"""Why a request is named as it is, why it is not named like another one, and what would make it so.

    explain.py      one question answered, top to bottom
    request.py      what a person typed, and what the record kept, as requests that can be named
    record.py       what is read from the record
    now.py          what that means for a call made now, in words
    in_run.py       a run as a call made now would meet it; run_now.py: which of its calls that would be
    likeness.py     a request compared with a recorded call
    evidence.py     what the record does not keep: whether the credentials were the same
    idle.py         names in `exclude` that leave nothing out
    differences.py  the parts in which two named requests differ; arguments.py: of arguments, by field
    matching.py     which `key:` makes two requests one call, found by naming both again
    written.py      that `key:` as YAML, read back by the policy file's own reader; where a rule stands
    told.py         all of it as one document

Nothing is named here: `proxy.front.naming.name_in_full` does that, for the proxy and for people alike.
"""
