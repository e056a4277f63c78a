"""The function `stand`, with which another program's test can use a cluster without commands.

`stand` runs a cluster in this process and in real time, until a request ends it. `stand` blocks the
thread that calls it, so the requests come from another thread: `mailbox.ask(request)` passes a
request to the loop of the run, and returns a future for the answer.

A request is refused with RefusalKind.ENDING if the cluster has not started yet, or is ending.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from chaos.experiment.structs import to_cluster_spec
from chaos.results.run_directory import create_run_directory, open_run
from chaos.standing.mailbox import Mailbox
from chaos.standing.messages import (
    Answer,
    DownRequest,
    InjectAnswer,
    InjectRequest,
    OrderRefusal,
    RefusalKind,
    StatusAnswer,
    StatusRequest,
)
from chaos.standing.stand import stand
from cluster.local.runtime import LocalRuntime
from cluster.runtime import RowObserver, Runtime
from results_schema.manifest import RunStatus
from results_schema.results import RunOutcome, Verdict
from tests.support.builders.quick_experiment import quick_experiment

PATIENCE_S = 60.0
"""The test waits for nothing longer than this. If something fails, it must not wait for ever."""
# The fields of a status that `stand` cannot know by itself, such as the cluster's name.
IDENTITY = StatusAnswer(
    name="quick", run_directory="x", runtime="local", pid=1, stage="", time_us=0
)
pytestmark = [pytest.mark.slow]


def refusal_of(future: "Future[Answer]") -> RefusalKind | None:
    """Return why the request was refused, or None if it was not refused."""
    answer = future.result(PATIENCE_S)
    return answer.kind if isinstance(answer, OrderRefusal) else None


def test_a_cluster_stands_until_its_mailbox_ends_it(tmp_path: Path) -> None:
    """The test of another program would use `stand` like this.

    1. A request before the start is refused.
    2. A thread waits for the steady state, injects a crash and waits for the end of the crash.
    3. A request for a fault of an unknown group is refused, and changes nothing.
    4. The last request ends the run. `stand` returns the results.
    """
    experiment = quick_experiment(faults=[], run={})
    directory = create_run_directory(
        tmp_path, experiment, (), seed=0, runtime="local", replay="again"
    )
    mailbox = Mailbox()
    serving = threading.Event()
    answers: list[Answer] = []

    def make_runtime(observers: Sequence[RowObserver]) -> Runtime:
        return LocalRuntime(
            to_cluster_spec(experiment),
            seed=0,
            run_id=directory.manifest.run,
            run_dir=directory.path,
            time_scale=10.0,  # the run's clock is ten times as fast as the real one
            observers=observers,
        )

    def ask(request: InjectRequest | StatusRequest) -> Answer:
        """Send a request, and record its answer."""
        answer: Answer = mailbox.ask(request).result(PATIENCE_S)
        answers.append(answer)
        return answer

    def send_requests() -> None:
        """Do the steps 2 to 4 of the docstring above."""
        assert serving.wait(PATIENCE_S)
        while True:
            status = ask(StatusRequest())
            if isinstance(status, StatusAnswer) and status.stage == "steady":
                break
        # `waits=True`: the answer comes only when the crash has been healed, after 3 s.
        ask(
            InjectRequest(
                fault="crash", target="coordinator-of(readers)", duration="3s", waits=True
            )
        )
        ask(InjectRequest(fault="crash", target="coordinator-of(payments)"))  # an unknown group
        mailbox.ask(DownRequest())

    too_early = mailbox.ask(StatusRequest())  # step 1: the cluster has not started
    # `stand` blocks this thread, so the requests of the steps 2 to 4 come from another thread.
    thread = threading.Thread(target=send_requests)
    thread.start()
    try:
        ended = stand(
            experiment,
            directory,
            make_runtime,
            mailbox,
            identity=IDENTITY,
            on_serving=lambda _runtime, _at_us: serving.set(),
        )
    finally:
        serving.set()  # even if `stand` failed: the thread must not wait for ever
        thread.join(PATIENCE_S)

    assert refusal_of(too_early) is RefusalKind.ENDING
    assert ended.results.outcome is RunOutcome.COMPLETED, ended.results.reasons
    assert ended.results.verdict is Verdict.PASS, ended.results
    assert ended.unseen_groups == ()  # no client from outside has joined a group

    # The answers before these two are those to the status requests.
    injected, refused = answers[-2:]
    assert isinstance(injected, InjectAnswer)
    assert injected.fault.healed_at_us is not None
    assert isinstance(refused, OrderRefusal)
    assert refusal_of(mailbox.ask(StatusRequest())) is RefusalKind.ENDING

    past = open_run(directory.path)
    assert past.manifest.status is RunStatus.COMPLETED
    assert [entry.fault_id for entry in past.journal()] == ["crash-0"]
    assert (directory.path / "events" / "part-00000.parquet").stat().st_size > 0
