"""`coordlab groups` asks and changes the groups of a cluster on Ray, during a failover.

The cluster belongs to a `coordlab run` in another process. The option SCALED_DOWN makes the cluster
small, and ENDLESS lets its fault last until the run ends. The exit code of `groups` is 1 if the
cluster refused what was asked, and 254 if there is no cluster.
"""

import json
import stat
from typing import Any

import pytest

from cluster.realtime.listeners_file import FILE_NAME
from protocol.trace import TraceKind
from results_schema.manifest import RunStatus
from results_schema.results import CheckOutcome
from tests.acceptance.test_ray_run import (
    ENDLESS,
    GROUP,
    PATIENCE_S,
    SCALED_DOWN,
    check_no_process_is_left,
    in_force,
    wait_until,
)
from tests.support.harness.command_line import CommandLine
from tests.support.worlds.acceptance import rows_of_run

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

TOOL = "tool"
"""A group without members that the tests create and delete."""
TWO_PARTITIONS = ("--topic", "orders:0,1")


def ask(command_line: CommandLine, *arguments: str) -> tuple[int, Any]:
    """Run `coordlab groups`; return its exit code and the JSON that it prints, if any.

    For example, ask(command_line, "list") -> (0, {"groups": [{"group": "orders-readers", ...}]}).
    """
    done = command_line.run("groups", *arguments, "--json", "--timeout", "60s")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def test_groups_of_a_running_cluster_are_queried_and_changed_during_a_failover(
    command_line: CommandLine,
) -> None:
    """`groups` finds the addresses of the brokers in the run's directory, and is traced as a node.

    At the end SIGTERM ends the run, as Ctrl-C does. Service managers and the program `timeout` send
    this signal. Ray has a handler of its own for SIGTERM, but this handler would exit before the
    faults are healed.
    """
    with command_line.started("run", "coordinator_crash", *SCALED_DOWN, *ENDLESS) as run:
        wait_until(lambda: run.poll() is not None or in_force(command_line), "the fault")
        assert run.poll() is None, run.communicate()
        # The coordinator is dead. If no other broker has taken over yet, the query waits for the
        # next coordinator.
        code, described = ask(command_line, "describe", "--group", GROUP, "--why")
        (past,) = command_line.runs()
        (crash,) = past.journal()
        check_described(code, described, killed=broker_id(crash.node))
        # Only the owner may read the file, because any reader can use the cluster as a client.
        assert stat.S_IMODE((past.path / FILE_NAME).stat().st_mode) == 0o600
        check_refused(command_line)
        check_changed(command_line)
        code, listed = ask(command_line, "list", "--run", str(past.path))
        assert code == 0
        assert [(row["group"], row["state"]) for row in listed["groups"]] == [(GROUP, "Stable")]
        run.terminate()
        output, errors = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 130, output + errors
    assert "SIGTERM" not in output + errors
    (past,) = command_line.runs()
    assert past.manifest.status is RunStatus.INTERRUPTED
    assert [fault.healed_by for fault in past.journal()] == ["end"]
    assert not (past.path / FILE_NAME).exists()
    assert ask(command_line, "list") == (254, None)
    results = past.results()
    assert results is not None
    assert not [check for check in results.checks if check.outcome is CheckOutcome.VIOLATED]
    rows = rows_of_run(past.path)
    # Each command is a node of its own in the trace: admin-1, admin-2 and so on. The run itself
    # uses admin-0. There were a `describe`, two refused orders, four calls in check_changed, and a
    # `list`.
    commands = {row.node for row in rows if row.node.startswith("admin-") and row.node != "admin-0"}
    assert len(commands) == 1 + 2 + 4 + 1
    # `delete-offsets` removed the first offset, the deletion of the group removed the second.
    removals = [row for row in rows if row.kind == TraceKind.OFFSET_REMOVED]
    assert [row.partition for row in removals] == ["orders-1", "orders-0"]
    assert {(row.group, row.cause) for row in removals} == {(TOOL, "deleted by an administrator")}
    check_no_process_is_left(command_line)


def broker_id(node: str | None) -> int:
    """Return the id of a broker: 2 of `broker-2`."""
    assert node is not None
    return int(node.removeprefix("broker-"))


def check_described(code: int, described: Any, killed: int) -> None:  # noqa: ANN401 - JSON
    """Check the description of the group: another broker than the killed one coordinates it."""
    assert code == 0
    (group,) = described["groups"]
    assert (group["state"], group["error"], len(group["members"])) == ("Stable", None, 4)
    assert group["coordinator"] != killed
    assert [offset["partition"] for offset in group["offsets"]] == [0, 1, 2, 3]
    assert all(offset["lag"] >= 0 for offset in group["offsets"])
    assert {offset["client_id"] for offset in group["offsets"]} == {
        f"consumer-{GROUP}-{index}" for index in range(4)
    }
    (rebalance,) = described["rebalances"][GROUP]
    # The members' first joins caused the only rebalance. The failover caused none.
    assert (rebalance["reason"], rebalance["new_generation"]) == ("join", 1)
    assert rebalance["length_us"] > 0
    assert described["unseen"] is None  # no part of the trace is missing


def check_refused(command_line: CommandLine) -> None:
    """Check that the group cannot be deleted or reset, because it has members.

    The refusal names the members.
    """
    code, refused = ask(command_line, "delete", "--group", GROUP)
    (group,) = refused["groups"]
    assert (code, group["error"]) == (1, "NON_EMPTY_GROUP")
    assert len(group["held_by"]) == 4
    code, refused = ask(
        command_line, "reset-offsets", "--group", GROUP, "--all-topics", "--to-latest", "--execute"
    )
    assert (code, refused["executed"], refused["state"]) == (1, False, "Stable")


def check_changed(command_line: CommandLine) -> None:
    """Check that a group without members can be created, changed, described and deleted.

    A reset of offsets creates the group TOOL with two offsets. One of them is then deleted.
    """
    reset = ("reset-offsets", "--group", TOOL, *TWO_PARTITIONS, "--to-earliest", "--execute")
    code, answer = ask(command_line, *reset)
    assert (code, answer["executed"]) == (0, True)
    code, answer = ask(command_line, "delete-offsets", "--group", TOOL, "--topic", "orders:1")
    assert (code, answer["error"]) == (0, None)
    code, described = ask(command_line, "describe", "--group", TOOL)
    (group,) = described["groups"]
    assert (code, group["state"]) == (0, "Empty")
    assert [(row["partition"], row["current_offset"]) for row in group["offsets"]] == [(0, 0)]
    code, deleted = ask(command_line, "delete", "--group", TOOL)
    assert (code, deleted["groups"]) == (0, [{"group": TOOL, "error": None, "held_by": []}])
