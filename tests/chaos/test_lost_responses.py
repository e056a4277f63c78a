"""One run in which three single responses are lost, and two nodes never return.

When a response is lost, the server has carried out the request, but the client does not know this,
and must repeat the request. The faults of the run are in the file SCHEDULE, whose comments explain
their order.
"""

from pathlib import Path

import pytest

from chaos.experiment.loader import load_experiment
from chaos.exploration.play import PlayResult, play
from protocol.trace import TraceKind, TraceRow

SCHEDULE = Path(__file__).parents[1] / "schedules" / "lost_responses_and_lost_nodes.yaml"
LOST_AT_US = 30_000_000
"""Time of the last fault, the loss of consumer-readers-2, counted from the steady state."""
MOST_AFTER_LOSS_US = 15_000_000
"""The run must end within this time after the last loss."""


@pytest.mark.slow
def test_request_whose_response_is_lost_is_repeated_and_no_lost_node_is_awaited() -> None:
    """Each of three faults loses exactly one response, and the cluster recovers each time.

    At its end the run waits until the remaining nodes work. It does not wait for the two nodes that
    never return, broker-3 and consumer-readers-2.
    """
    rows: list[TraceRow] = []
    run = play(load_experiment(str(SCHEDULE)).experiment, seed=1, observers=(rows.append,))

    lost = [(row.api, row.error) for row in rows if row.kind == TraceKind.RESPONSE_LOST]
    assert lost == [
        ("JoinGroup", "MEMBER_ID_REQUIRED"),
        ("SyncGroup", "NONE"),
        ("AlterPartition", "NONE"),
    ]
    assert (run.result, run.faults_missed) == (PlayResult.PASS, 0)

    # broker-3 and consumer-readers-2 were started once, and then lost. consumer-readers-1 crashed
    # twice, so it was started three times.
    started = [row.node for row in rows if row.kind == TraceKind.NODE_STARTED]
    assert started.count("broker-3") == 1
    assert started.count("consumer-readers-2") == 1
    assert started.count("consumer-readers-1") == 3

    # The times of faults count from the steady state, in which all nodes work. A run that waited
    # for a lost node would last longer.
    assert run.steady_us is not None
    assert run.virtual_us - run.steady_us < LOST_AT_US + MOST_AFTER_LOSS_US
