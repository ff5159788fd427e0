"""The OpenAPI 3.1 document, made from the routes and schemas that the API itself uses."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

from proxy import __version__
from proxy.admin.routes import COMMON_FAILURES, IN_PATH, PREFIX, ROUTES, Route
from proxy.admin.schemas import COMPONENTS, ref
from proxy.admin.views import Json
from proxy.problem import CONTENT_TYPE, PROBLEMS, Problem

_PROBLEM_TYPE = CONTENT_TYPE.decode()


@lru_cache(maxsize=1)
def document() -> Json:
    paths: dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "semel",
            "version": __version__,
            "description": "The record of an HTTP proxy that makes every tool call happen once, and the "
            "decisions of its operator. Where `auth` is configured a token with the role operator is needed.",
        },
        "paths": paths,
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "Semel-Token"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(route: Route) -> Json:
    operation: Json = {"operationId": route.name, "summary": route.summary, "responses": _responses(route)}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in IN_PATH.items()
        if f"{{{name}}}" in route.path
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in (route.query or {}).items()
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        operation["requestBody"] = {"required": True, "content": _json(route.body)}
    return operation


def _responses(route: Route) -> Json:
    responses: Json = {"200": {"description": "Done.", "content": _given(route)}}
    problems = sorted(
        {PROBLEMS[kind].name: PROBLEMS[kind] for kind in (*COMMON_FAILURES, *route.fails)}.values(),
        key=lambda problem: (problem.status, problem.name),
    )
    for status, alike in groupby(problems, key=lambda problem: problem.status):
        responses[str(status)] = {
            "description": _described(list(alike)),
            "content": {_PROBLEM_TYPE: {"schema": ref("Problem")}},
        }
    return responses


def _described(problems: list[Problem]) -> str:
    return " ".join(f"`{problem.name}`: {problem.title}." for problem in problems)


def _given(route: Route) -> Json:
    if route.handle is None:
        return {"application/json": {"schema": {"type": "object"}}}
    if route.lines:
        return {"application/x-ndjson": {"schema": ref(route.gives)}}
    # Whatever the upstream sent, under its own type where that is harmless.
    return _json(route.gives) if route.gives else {"*/*": {"schema": {}}}


def _json(component: str) -> Json:
    return {"application/json": {"schema": ref(component)}}
