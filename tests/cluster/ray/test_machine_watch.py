"""MachineWatch notices when a machine of a run no longer answers.

The driver, the main process of the run, asks all machines regularly. A machine that answers is
HEARD. After 3 s without an answer it is SILENT, and after 20 s it is LOST. The tests give the time
as an argument, in seconds: `record_answer("a", 2.9)` is an answer of machine a at 2.9 s.
"""

from cluster.ray.machine_watch import Contact, MachineChange, MachineWatch, SilenceLimits


def watch() -> MachineWatch:
    """Return a watch over the machines a and b, both of which have answered at 0 s."""
    machines = MachineWatch(SilenceLimits(silent_after_s=3.0, lost_after_s=20.0))
    machines.record_answer("a", 0.0)
    machines.record_answer("b", 0.0)
    return machines


def test_machine_that_answers_is_never_reported() -> None:
    """An answer after 2.9 s is in time, because a machine is SILENT only after 3 s."""
    machines = watch()

    assert machines.find_changes(2.9) == []
    assert machines.record_answer("a", 2.9) is None
    assert machines.state_of("a") is Contact.HEARD


def test_beginning_and_end_of_a_silence_are_reported_once() -> None:
    """Machine a is silent for 12 s, and then answers again, before it is lost.

    `since_s` in a report is the time of the machine's last answer before the silence.
    """
    machines = watch()
    machines.record_answer("b", 10.0)

    assert machines.find_changes(10.0) == [
        MachineChange(machine="a", state=Contact.SILENT, since_s=0.0)
    ]
    assert machines.find_changes(11.0) == []  # the silence of a was reported already
    end_of_silence = machines.record_answer("a", 12.0)
    assert end_of_silence == MachineChange(machine="a", state=Contact.HEARD, since_s=0.0)
    # Machine b has not answered since 10 s. The end of the silence of a is not reported again.
    assert machines.find_changes(13.0) == [
        MachineChange(machine="b", state=Contact.SILENT, since_s=10.0)
    ]


def test_machine_that_is_silent_for_too_long_is_lost_for_good() -> None:
    """A lost machine is given up: its nodes are started on another machine.

    So a late answer must not bring the machine back.
    """
    machines = watch()
    machines.find_changes(5.0)  # both machines are SILENT
    machines.record_answer("b", 19.0)

    assert machines.find_changes(20.0) == [
        MachineChange(machine="a", state=Contact.LOST, since_s=0.0)
    ]
    assert machines.record_answer("a", 21.0) is None
    assert machines.state_of("a") is Contact.LOST
    assert machines.find_changes(22.5) == [
        MachineChange(machine="b", state=Contact.SILENT, since_s=19.0)
    ]


def test_driver_that_was_stopped_reports_no_machine() -> None:
    """A driver that is stopped, for instance by SIGSTOP, gets no answers meanwhile.

    It must not count this time as silence of the machines. So it calls `excuse_driver` when it runs
    again: all machines then count as if they had just answered.
    """
    machines = watch()

    machines.excuse_driver(60.0)  # the driver was stopped until 60 s

    assert machines.find_changes(60.0) == []
    # The silence counts from 60 s on.
    assert [change.machine for change in machines.find_changes(63.0)] == ["a", "b"]
