"""The command `up`, which starts a cluster, and the commands that a user gives to this cluster.

For example, a user types `up --topic orders:2 --group readers:orders:2` in one terminal. This
starts a cluster with a topic of two partitions and a group of two members. In another terminal the
user types orders to the cluster, such as `inject crash broker(0)` and `heal`. The cluster runs
until the order `down`. It is called `lab`, unless the user gives it another name with `--name`.

Each test does the same with processes of its own, in a few seconds of real time. At the end the
tests look into the journal, the run's list of faults. There `healed_by` says what ended a fault:

- "plan": its planned end, in the plan of a file or by its `--duration`
- "order": the order `heal`
- "end": the end of the run
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.standing.registry import FOLDER
from results_schema.manifest import RunStatus
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN
from tests.support.harness.command_line import ROOT, CommandLine
from tests.support.harness.programs import wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PATIENCE_S = 60.0
"""The longest wait for the end of a process."""
QUICK = (
    *("--topic", "orders:2", "--group", "readers:orders:2", "--producer", "orders:50"),
    "--var=cluster.config.group.initial.rebalance.delay.ms=0",
    "--var=cluster.config.offsets.topic.num.partitions=4",
    "--var=cluster.config.broker.session.timeout.ms=2000",
    "--var=cluster.config.broker.heartbeat.interval.ms=400",
    "--var=groups.readers.commit_interval_ms=100",
    "--no-analyze",
)
"""Options for a small cluster with short timeouts. Its group is Stable in a moment."""


@contextmanager
def up(
    command_line: CommandLine, *arguments: str, until: str = "end it"
) -> Iterator["subprocess.Popen[str]"]:
    """Start `up`, and yield its process when it has printed the line with `until`.

    By default this is the last line of its greeting.
    """
    with command_line.started("up", *arguments) as process:
        output = read_until(process, until)
        assert process.poll() is None, (output, process.communicate())
        yield process


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """Read a process's output up to the line with `words`, or to its end."""
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if words in line:
            break
    return output


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Wait for the end of a process; return its exit code and the output not read before."""
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in output + errors, output + errors
    return process.returncode, output


def test_a_cluster_gets_faults_and_is_healed_and_ended_from_another_terminal(
    command_line: CommandLine,
) -> None:
    """One session uses all commands of docs/UP.md: status, inject, heal, down.

    The crash lasts 1 s. That is less than broker.session.timeout.ms (2 s), so the controller does
    not notice the crash, and `inject` warns of it.
    """
    with up(command_line, *QUICK, until="group readers: Stable") as cluster:
        status = json.loads(command_line.run("status", "--json", "--partitions").stdout)
        assert [group["group"] for group in status["groups"]] == ["readers"]
        topics = {partition["topic"] for partition in status["partitions"]}
        assert topics == {"__consumer_offsets", "orders"}
        assert "group readers: Stable" in command_line.run("status").stdout

        crashed = command_line.run(
            "inject", "crash", "--duration", "1s", "--wait", "--coordinator-of", "readers"
        )
        assert crashed.returncode == EXIT_PASS, crashed.stderr
        assert "crash-0: crash of coordinator-of(readers) hit broker-" in crashed.stdout
        assert "over" in crashed.stdout  # --wait has waited for the end of the fault
        assert "more than broker.session.timeout.ms" in crashed.stderr

        slow = command_line.run(
            "inject", "slow", "--from", "clients", "--to", "brokers", "--arg", "delay=5ms"
        )
        assert slow.returncode == EXIT_PASS, slow.stderr
        assert "in force until `heal slow-0`" in slow.stdout

        status = json.loads(command_line.run("status", "--json").stdout)
        assert [fault["fault_id"] for fault in status["faults"]] == ["crash-0", "slow-0"]

        assert command_line.run("heal", "slow-0").stdout.endswith("is healed\n")
        assert command_line.run("heal").stdout == "nothing is in force\n"

        down = command_line.run("down")
        code, output = ended(cluster)
    assert (down.returncode, code) == (EXIT_PASS, EXIT_PASS), down.stdout + output
    assert down.stdout.startswith("pass\n")
    assert "PASS  lab on local" in output
    (past,) = command_line.runs()
    assert past.manifest.status is RunStatus.COMPLETED
    assert past.manifest.replay.startswith("python -m coordlab up --topic orders:2")
    # The crash ended by its own duration. The order `heal` ended the slow links.
    assert [(fault.fault_id, fault.healed_by) for fault in past.journal()] == [
        ("crash-0", "plan"),
        ("slow-0", "order"),
    ]
    # While a cluster is up, it has a file in a hidden folder. Now there is none.
    hidden_folder = command_line.folder / "runs" / FOLDER
    assert not list(hidden_folder.iterdir())
    assert command_line.processes() == []


def test_wrong_orders_end_with_their_exit_codes(command_line: CommandLine) -> None:
    """An order that can never work ends with EXIT_BAD_ARGUMENTS.

    An order whose target does not exist at present ends with EXIT_UNKNOWN. The cluster carries none
    of these orders out, and lives on until SIGTERM.
    """
    nowhere = command_line.run("inject", "crash", "broker(0)")
    assert nowhere.returncode == EXIT_BAD_ARGUMENTS
    assert nowhere.stderr.startswith("no cluster is up in runs: `")
    assert nowhere.stderr.endswith(" up` starts one\n")
    with up(command_line, "--no-analyze") as cluster:
        wrong_orders = (
            (("crash", "brokr(0)"), EXIT_BAD_ARGUMENTS, "did you mean `broker(0)`?"),
            (("crash", "--coordinator-of", "payments"), EXIT_UNKNOWN, "no group `payments`"),
            (("crash", "broker(0)", "--arg", "x"), EXIT_BAD_ARGUMENTS, "expected `key=value`"),
            # No cluster is called x.
            (("crash", "broker(0)", "--name", "x"), EXIT_BAD_ARGUMENTS, "`lab` is up"),
        )
        for arguments, code, message in wrong_orders:
            refused = command_line.run("inject", *arguments)
            assert refused.returncode == code, refused.stderr
            assert message in refused.stderr
        again = command_line.run("up", "--no-analyze")
        assert again.returncode == EXIT_BAD_ARGUMENTS
        assert "a cluster `lab` is up already" in again.stderr
        assert json.loads(command_line.run("status", "--json").stdout)["faults"] == []
        cluster.send_signal(signal.SIGTERM)
        code, output = ended(cluster)
    assert code == EXIT_PASS, output
    assert len(command_line.runs()) == 1
    assert command_line.runs()[0].journal() == ()


def test_occupied_ports_are_named_before_the_start(
    command_line: CommandLine,
) -> None:
    """If another program listens at the port, nothing is started and no directory is made."""
    with socket.socket() as other_program:
        other_program.bind(("127.0.0.1", 0))  # 0: any free port
        other_program.listen(1)
        port = other_program.getsockname()[1]
        refused = command_line.run("up", "--brokers", "1", "--port", str(port))
    assert refused.returncode == EXIT_BAD_ARGUMENTS
    assert f"nothing can listen at 127.0.0.1:{port}" in refused.stderr
    assert not (command_line.folder / "runs").exists()


def test_ctrl_c_heals_and_judges_and_a_second_one_ends_the_wait(command_line: CommandLine) -> None:
    """The first Ctrl-C acts like the order `down`. A second Ctrl-C ends the final wait.

    At its end a run heals all faults, and waits until every member is served again. While it waits,
    it prints "liveness".

    1. The cluster `blue` gets one Ctrl-C, waits to the end, and passes.
    2. The cluster `green` gets a second Ctrl-C while it waits, and so ends with exit code 130.
    """
    with up(command_line, *QUICK, "--name", "blue", until="group readers: Stable") as cluster:
        assert command_line.run("inject", "pause", "broker(0)").returncode == EXIT_PASS
        cluster.send_signal(signal.SIGINT)
        code, output = ended(cluster)
    assert code == EXIT_PASS, output
    (past,) = command_line.runs()
    assert [fault.healed_by for fault in past.journal()] == ["end"]

    # The session of a dead member ends only after 30 s, so the final wait is long.
    long_sessions = "--var=groups.readers.config.session.timeout.ms=30000"
    green = (*QUICK, "--name", "green", long_sessions)
    with up(command_line, *green, until="group readers: Stable") as cluster:
        # An order without --name goes to the only cluster that is up.
        assert command_line.run("inject", "pause", "broker(0)").returncode == EXIT_PASS
        crashed = command_line.run("inject", "crash", "member(readers, 0)", "--name", "green")
        assert crashed.returncode == EXIT_PASS, crashed.stderr
        cluster.send_signal(signal.SIGINT)
        read_until(cluster, "liveness")
        cluster.send_signal(signal.SIGINT)
        code, output = ended(cluster)
    assert code == EXIT_INTERRUPTED, output
    assert command_line.processes() == []


def test_a_duration_ends_the_cluster_and_a_plan_is_played(
    command_line: CommandLine, tmp_path: Path
) -> None:
    """With --play, `up` plays the faults of its file. With --duration it ends by itself.

    A CI system needs both options.
    """
    # This is the folder in which the command runs.
    file = tmp_path / "small.yaml"
    file.write_text(
        "version: 1\nname: small\nquestion: q\nexpect: e\n"
        "cluster: {config: {offsets.topic.num.partitions: 4,"
        " group.initial.rebalance.delay.ms: 0}}\n"
        "topics: {orders: {partitions: 2, replication.factor: 3}}\n"
        "groups: {readers: {members: 2, topics: [orders], commit_interval_ms: 100}}\n"
        "producers: [{topic: orders, records_per_second: 50}]\n"
        "faults: [{at: 100ms, fault: pause, target: coordinator-of(readers), duration: 500ms}]\n"
    )
    done = command_line.run("up", "small.yaml", "--play", "--duration", "4s", "--no-analyze")
    assert done.returncode == EXIT_PASS, done.stdout + done.stderr
    (past,) = command_line.runs()
    assert past.manifest.experiment == "small"
    assert [(fault.fault_id, fault.healed_by) for fault in past.journal()] == [("pause-0", "plan")]


def test_a_killed_cluster_leaves_no_process_and_its_name_is_free(
    command_line: CommandLine,
) -> None:
    """A cluster that ends by SIGKILL leaves files behind. The next command removes these files."""
    with up(command_line, "--no-analyze", "--no-trace") as cluster:
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.communicate(timeout=PATIENCE_S)
    assert command_line.processes() == []
    (past,) = command_line.runs()
    assert (past.path / "disks").exists()

    status = command_line.run("status")
    assert status.returncode == EXIT_BAD_ARGUMENTS
    assert f"the cluster `lab` (process {cluster.pid}) has died without a word" in status.stderr
    assert not (past.path / "disks").exists()
    assert not (past.path / "listeners.json").exists()

    done = command_line.run("up", "--duration", "100ms", "--no-analyze")
    assert done.returncode == EXIT_PASS, done.stdout + done.stderr


def join(bootstrap: list[str], group: str) -> "subprocess.Popen[str]":
    """Start a client of the library librdkafka that becomes a member of a group.

    The client prints a line of JSON for each event, such as "committed" and "closed".
    """
    return subprocess.Popen(
        [
            *(sys.executable, str(ROOT / "clients" / "librdkafka.py"), "consume"),
            *("--bootstrap", ",".join(bootstrap)),
            *("--topic", "orders", "--group", group, "--name", "shop"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_client_from_outside_joins_consumers_of_the_lab(command_line: CommandLine) -> None:
    """A client from outside writes no trace, so no rows show the records that it processes.

    The checks know of such a client, and do not count those records as lost.
    """
    # This replaces the topic of two partitions in QUICK, so that each of three members owns some.
    six_partitions = ("--topic", "orders:6")
    with up(command_line, *QUICK, *six_partitions, until="group readers: Stable") as cluster:
        shown = json.loads(command_line.run("status", "--json").stdout)
        client = join(shown["bootstrap"], "readers")
        try:
            assert read_until(client, '"committed"')
            (group,) = json.loads(command_line.run("status", "--json").stdout)["groups"]
            outside = [member for member in group["members"] if member["node"] is None]
            assert len(outside) == 1
        finally:
            client.terminate()
            client.communicate(timeout=PATIENCE_S)
        down = command_line.run("down")
        code, output = ended(cluster)
    assert (down.returncode, code) == (EXIT_PASS, EXIT_PASS), down.stdout + output
    assert "clients from outside joined readers" in output


def test_a_client_from_outside_survives_the_crash_of_its_coordinator(
    command_line: CommandLine,
) -> None:
    """An order can hit the coordinator of a group that no experiment file defines.

    `status` shows the group, and the output of `down` names it.
    """
    with up(
        command_line,
        *("--topic", "orders:2", "--producer", "orders:50", "--no-analyze"),
        "--var=cluster.config.group.initial.rebalance.delay.ms=0",
        "--var=cluster.config.broker.session.timeout.ms=2000",
        "--var=cluster.config.broker.heartbeat.interval.ms=400",
    ) as cluster:
        shown = json.loads(command_line.run("status", "--json").stdout)
        client = join(shown["bootstrap"], "payments")
        try:
            read_until(client, '"committed"')
            shown = json.loads(command_line.run("status", "--json").stdout)
            # The cluster was started without a file, so the file has not defined the group.
            (group,) = shown["groups"]
            assert (group["group"], group["is_of_the_file"]) == ("payments", False)
            (member,) = group["members"]
            assert member["member_id"].startswith("shop-")
            assert member["node"] is None

            crashed = command_line.run(
                "inject", "crash", "--duration", "4s", "--wait", "--coordinator-of", "payments"
            )
            assert crashed.returncode == EXIT_PASS, crashed.stderr
            assert read_until(client, '"committed"'), "it commits to the next coordinator"
            assert client.poll() is None
            client.terminate()
            assert '"closed"' in client.communicate(timeout=PATIENCE_S)[0]
        finally:
            client.kill()
            client.wait()
        down = command_line.run("down")
        code, output = ended(cluster)
    assert (down.returncode, code) == (EXIT_PASS, EXIT_PASS), down.stdout + output
    assert "clients from outside joined payments" in down.stdout


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_the_same_commands_act_on_a_cluster_on_ray(command_line: CommandLine) -> None:
    """On Ray each broker is a process of its own. All processes end after a SIGKILL of `up`."""
    with up(command_line, *QUICK, "--runtime", "ray", until="group readers: Stable") as cluster:
        crashed = command_line.run(
            "inject", "crash", "--duration", "3s", "--wait", "--coordinator-of", "readers"
        )
        assert crashed.returncode == EXIT_PASS, crashed.stderr
        shown = json.loads(command_line.run("status", "--json").stdout)
        assert shown["runtime"] == "ray"
        # The process of the crashed broker is not the process of `up`.
        assert shown["faults"][0]["pid"] not in (None, cluster.pid)
        down = command_line.run("down")
        code, output = ended(cluster)
    assert (down.returncode, code) == (EXIT_PASS, EXIT_PASS), down.stdout + output

    with up(command_line, "--runtime", "ray", "--no-analyze") as cluster:
        assert len(command_line.processes()) > 3
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.communicate(timeout=PATIENCE_S)
        wait_gone(command_line.processes())
    assert "has died without a word" in command_line.run("status").stderr
