"""How RayRuntime merges the trace files at the end of a run. No Ray is started here.

The trace is the list of all recorded events. During a run each node writes its events into a file
of its own.
"""

from pathlib import Path

from cluster.ray.runtime import RayRuntime
from cluster.trace.files import FrameTraceWriter, frames_path
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp
from tests.support.harness.fake_cluster import fake_builder, fake_spec

TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 1\nZeroDivisionError: planted\n'
)


def write_failure(run_dir: Path, node: str) -> None:
    """Write the trace file of a node in which the task `fetcher` has failed."""
    writer = FrameTraceWriter(frames_path(run_dir / "trace", NodeName(node), incarnation=0))
    event = TraceEvent(kind=TraceKind.TASK_FAILED, cause="fetcher", detail={"exception": TRACEBACK})
    row = stamp(event, run="run", time_us=5, node_time_us=5, seq=0, node=node, incarnation=0)
    writer.write(row)
    writer.close()


def test_failure_that_was_only_traced_is_a_failure_of_the_run(tmp_path: Path) -> None:
    """A process may write a failure into its trace, and end before it reports it to the run.

    Here the trace has failures of broker-0 and broker-1, and only broker-1 has reported its
    failure. So the failure of broker-0 must be added, and that of broker-1 must not appear twice.
    """
    rows: list[TraceRow] = []
    runtime = RayRuntime(
        fake_spec(brokers=2, consumers=1),
        seed=1,
        run_id="run",
        run_dir=tmp_path,
        build=fake_builder(),
        observers=[rows.append],
    )
    for node in ("broker-0", "broker-1"):
        write_failure(tmp_path, node)
    reported = "broker-1: fetcher died with ZeroDivisionError: planted"
    runtime._failed(reported)  # as if the process of broker-1 had reported its failure
    runtime.run(runtime.stop())  # merges the files, and gives each row to the observer
    assert runtime.failures() == (
        reported,
        "broker-0: fetcher died with ZeroDivisionError: planted",
    )
    assert [row.node for row in rows] == ["broker-0", "broker-1"]
