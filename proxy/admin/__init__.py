"""The operator's desk: what a person can see and decide, over HTTP under /_semel/ and on the command line.

schemas.py    every document that is given or taken, as JSON Schema: one definition for API and CLI
views.py      records as those documents; what sounds secret is left out (redact.py)
desk.py       the seam: what can be asked; LocalDesk does it on a store
remote.py     the same, asked of a running proxy
rules.py      what the policies say about a recorded call
routes.py     one table: address, parameters, bodies, what answers (route.py is a line of it)
run_*.py      all of this for runs; run_export.py writes one out, step by step
api.py        a request through that table (checked.py), and who may make it (browsers.py)
openapi.py    the table as an OpenAPI document
pages.py      the operator's page (page/), which asks this API from a browser
sessions.py   what that browser carries instead of a token; front/sign_in.py hands it out
"""
