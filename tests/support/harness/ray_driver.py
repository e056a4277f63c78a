"""A driver for tests that interrupt a driver, which is the process that conducts a run on Ray.

Usage: python -m tests.support.harness.ray_driver RUN_DIR ADDRESS MILLISECONDS [NODE_TO_PAUSE].

The driver runs a fake cluster on the Ray head at ADDRESS, until MILLISECONDS are over or a test
stops the driver. It prints two events, each as a line of JSON:

- `up`, when the cluster runs, with the pids of the node processes. If NODE_TO_PAUSE is given, the
  driver has paused the process of this node, and the pid of this process comes first.
- `stopped`, at the end, with the failures of coordlab itself, and with the number of answers that
  nodes have received.
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
            half_a_second_us = 500_000
            await runtime.sleep(half_a_second_us)
            paused_process = await runtime.pause(NodeName(paused))
            # Move the pid of the paused process to the front: False sorts before True.
            pids.sort(key=lambda pid: pid != paused_process.pid)
        say("up", pids=pids)
        await runtime.sleep(run_ms * 1_000)

    try:
        runtime.run(experiment())
    finally:
        runtime.run(runtime.stop())
        # The nodes have written these rows in their own processes. So their number shows whether
        # the traces of these processes were collected.
        acknowledged = sum(row.kind == "response_received" for row in rows)
        say("stopped", failures=runtime.failures(), acknowledged=acknowledged)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
