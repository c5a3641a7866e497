"""What happens to scheduled runs that nobody was there to start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Cancelled

RUNS_PER_REQUEST = 200  # the server's limit


def collapse_missed_runs(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Cancel the other scheduled runs of the same deployment that are due, since this one does their work.

    A hook for `on_running`: after a week without power the nightly cycle runs once and not seven times. Runs
    that a person asked for are left alone.
    """
    if flow_run.deployment_id is None:
        return
    due = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[flow_run.deployment_id]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=datetime.now(UTC)),
    )
    outcome: State[None] = Cancelled(message=f"Missed; its work was done by the run '{flow_run.name}'.")
    with get_client(sync_client=True) as client:
        for other in client.read_flow_runs(flow_run_filter=due, limit=RUNS_PER_REQUEST):
            if other.auto_scheduled and other.id != flow_run.id:
                client.set_flow_run_state(other.id, outcome, force=True)
