"""A driver that tests start as a process of its own, to interrupt or kill it.

A driver is the process that conducts a run. This driver runs a fake cluster on Ray for a given time
(MILLISECONDS), or until a test stops it.

Usage: python -m tests.support.harness.ray_driver RUN_DIR ADDRESS MILLISECONDS [NODE_TO_PAUSE].
ADDRESS is the address of a Ray head. The driver prints two events, one JSON object per line:

- `up` has the pids of the node processes. If NODE_TO_PAUSE is given, the driver pauses the
  process of this node by a signal, and the pid of this process is the first.
- `stopped` comes at the end. It has the failures of the tool itself, and the number of answers
  that nodes received.
"""

import json
import sys
from pathlib import Path

from cluster.ray.runtime import RayRuntime
from protocol.ids import NodeName
from protocol.trace import TraceRow
from tests.support.harness.fake_cluster import fake_builder, fake_spec


def say(event: str, **fields: object) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def main(run_dir: Path, ray_address: str, run_ms: int, paused: str | None = None) -> None:
    """Run the cluster."""
    rows: list[TraceRow] = []
    runtime = RayRuntime(
        fake_spec(brokers=1, consumers=2),
        seed=1,
        run_id=run_dir.name,
        run_dir=run_dir,
        ray_address=ray_address,
        build=fake_builder(),
        observers=[rows.append],
    )

    async def experiment() -> None:
        await runtime.start()
        pids = list(runtime.pids())
        if paused is not None:
            await runtime.sleep(500_000)  # microseconds
            paused_process = await runtime.pause(NodeName(paused))
            # Move the paused process to the front; False sorts before True.
            pids.sort(key=lambda pid: pid != paused_process.pid)
        say("up", pids=pids)
        await runtime.sleep(run_ms * 1_000)

    try:
        runtime.run(experiment())
    finally:
        runtime.run(runtime.stop())
        # Rows arrive from all processes, so a count shows that their traces were collected.
        acknowledged = sum(row.kind == "response_received" for row in rows)
        say("stopped", failures=runtime.failures(), acknowledged=acknowledged)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
