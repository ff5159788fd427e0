"""What can be asked about runs under /_semel/: the part of the table in routes.py that is about them."""

from __future__ import annotations

from proxy import errors
from proxy.admin.desk import Desk
from proxy.admin.route import AFTER, Asked, Lines, Route, page_size
from proxy.admin.run_desk import Fork
from proxy.admin.run_schemas import RUN_STATE
from proxy.admin.views import Json
from proxy.core.run_record import RunState
from proxy.store.base import RunQuery

_ON_ONE_RUN = (errors.NotFound,)
_ON_A_LIVING_RUN = (*_ON_ONE_RUN, errors.RunExpired)
_DECIDING = (*_ON_A_LIVING_RUN, errors.StaleVersion, errors.TooLarge, errors.UnsupportedMediaType)


async def _runs(desk: Desk, asked: Asked) -> Json:
    given = dict(asked.query)
    state = given.pop("state", None)
    return await desk.runs.page(RunQuery(state=None if state is None else RunState(state), **given))


async def _run(desk: Desk, asked: Asked) -> Json:
    return await desk.runs.show(asked.run)


async def _fork(desk: Desk, asked: Asked) -> Json:
    said = asked.body
    fork = Fork(
        by=asked.by,
        reason=said["reason"],
        at=int(said["at"]),
        name=said["as"],
        resend=said.get("resend", False),
    )
    return await desk.runs.fork(asked.run, fork)


async def _allow(desk: Desk, asked: Asked) -> Json:
    return await desk.runs.allow(asked.run, by=asked.by, reason=asked.body["reason"])


async def _complete(desk: Desk, asked: Asked) -> Json:
    return await desk.runs.complete(asked.run, by=asked.by, attempt=asked.body.get("attempt", ""))


async def _export(desk: Desk, asked: Asked) -> Lines:
    return Lines(await desk.runs.export(asked.run), asked.run)


RUN_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="runs",
        name="listRuns",
        summary="Runs, in the order in which they were first seen, newest first",
        handle=_runs,
        query={"state": RUN_STATE, "limit": page_size("Default: 100."), "after": AFTER},
        gives="RunPage",
    ),
    Route(
        method="GET",
        path="runs/{run}",
        name="showRun",
        summary="One run: its attempts, steps, history and figures; also for the role agent of its tenant",
        handle=_run,
        gives="RunDetail",
        fails=_ON_ONE_RUN,
    ),
    Route(
        method="POST",
        path="runs/{run}/fork",
        name="forkRun",
        summary="A new run that begins with the record of this one up to a step",
        handle=_fork,
        body="Fork",
        gives="Run",
        fails=(*_DECIDING, errors.RunExists),
    ),
    Route(
        method="POST",
        path="runs/{run}/allow",
        name="allowRun",
        summary="Let the latest attempt leave the record: retire the calls that it has not asked",
        handle=_allow,
        body="Allow",
        gives="Allowed",
        fails=_DECIDING,
    ),
    Route(
        method="POST",
        path="runs/{run}/complete",
        name="completeRun",
        summary="Say that the agent ended well; also for the role agent of its tenant",
        handle=_complete,
        body="Complete",
        gives="Run",
        fails=_DECIDING,
    ),
    Route(
        method="GET",
        path="runs/{run}/export",
        name="exportRun",
        summary="The run as JSON Lines: what was asked and what was answered, step by step",
        handle=_export,
        gives="Export",
        lines=True,
        fails=_ON_A_LIVING_RUN,
    ),
)
