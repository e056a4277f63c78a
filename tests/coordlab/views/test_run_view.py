"""The live panel of a run: bounded for any size of the cluster, readable without colour.

The panel is drawn again and again; it shows the run's stage, brokers, groups and faults. In all
these tests the run's clock shows NOW_S. A generation counts a group's rebalances.
"""

import io

import pytest
from rich.console import Console

from chaos.run.runner import STAGES, Progress
from cluster.runtime import ClusterStatus, GroupStatus, MemberStatus
from coordlab.views.run_view import run_panel, run_view
from protocol.ids import BrokerId, NodeName
from results_schema.journal import FaultOutcome, JournalEntry

SECOND = 1_000_000
WIDTHS = (40, 80, 120)
NOW_S = 100
# Indexes of lines of the panel; line 0 has the names of experiment and runtime.
STAGE_LINE = 1
BROKERS_LINE = 2


def lines_of(current: Progress, width: int) -> list[str]:
    """Return the panel's lines, after a check that none is wider than the terminal."""
    shown = Console(file=io.StringIO(), width=width, no_color=True)
    shown.print(run_panel("small", "ray", current, width))
    assert isinstance(shown.file, io.StringIO)
    lines = [line.rstrip() for line in shown.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


def group(coordinator: int, state: str = "Stable", members: int = 20) -> GroupStatus:
    """Return a group as its coordinator reports it."""
    return GroupStatus(
        coordinator=BrokerId(coordinator),
        offsets_partition=0,
        state=state,
        generation=3,
        members=tuple(f"m-{n}" for n in range(members)),
    )


def members(group_id: str, count: int, coordinator: int) -> dict[NodeName, MemberStatus]:
    """Return members as they report themselves, with the coordinator that they know."""
    return {
        NodeName(f"consumer-{group_id}-{n}"): MemberStatus(
            group_id=group_id,
            member_id=f"m-{n}",
            generation=3,
            state="STABLE",
            coordinator=BrokerId(coordinator),
            assigned=(),
            records_consumed=0,
            commits_acknowledged=0,
        )
        for n in range(count)
    }


def status(
    groups: dict[str, list[GroupStatus]], brokers: int = 3, down: tuple[int, ...] = ()
) -> ClusterStatus:
    """Return a status in which each group has twenty members, which know broker 0 as coordinator.

    `groups` is what the coordinators know of the groups, which may differ from what members know.
    """
    ids = [BrokerId(n) for n in range(brokers)]
    return ClusterStatus(
        brokers_alive={broker: broker not in down for broker in ids},
        brokers_fenced=dict.fromkeys(ids, False),
        groups=groups,
        members={
            name: member for group_id in groups for name, member in members(group_id, 20, 0).items()
        },
    )


def fault(number: int, outcome: FaultOutcome = FaultOutcome.PLANNED, **more: int) -> JournalEntry:
    """Return repetition `number` of the experiment's first fault, `crash-0`.

    `more` sets other fields of the entry.
    """
    entry = JournalEntry(
        fault_id=f"crash-0.{number}",
        fault="crash",
        target=f"broker({number})",
        duration_us=SECOND,
        outcome=outcome,
    )
    for name, value in more.items():
        setattr(entry, name, value)
    return entry


def progress(
    cluster: ClusterStatus | None = None,
    faults: tuple[JournalEntry, ...] = (),
    stage: str = "faults",
) -> Progress:
    """Return the progress of a run at NOW_S."""
    return Progress(stage=stage, time_us=NOW_S * SECOND, status=cluster, faults=faults)


@pytest.mark.parametrize("stage", STAGES)
def test_present_stage_is_visible_without_colour(stage: str) -> None:
    """The present stage is in brackets; a narrow terminal shows only the present stage."""
    assert f"[{stage}]" in lines_of(progress(stage=stage), 80)[STAGE_LINE]
    assert lines_of(progress(stage=stage), 40)[STAGE_LINE].startswith(f"{stage} (stage ")


@pytest.mark.parametrize("width", WIDTHS)
def test_split_brain_shows_both_coordinators_with_whole_words(width: int) -> None:
    """The state of a group is the important word, so it is never truncated."""
    # All twenty members know broker 0 as the coordinator.
    two_copies = [group(0, "PreparingRebalance", 8), group(2)]
    text = " ".join(" ".join(lines_of(progress(status({"readers": two_copies})), width)).split())
    for word in ("PreparingRebalance", "Stable", "broker 0", "broker 2", "20 x broker 0"):
        assert word in text, word


@pytest.mark.parametrize("width", WIDTHS)
def test_fifty_groups_show_those_that_are_not_stable_first(width: int) -> None:
    """The screen shows 12 of the 50 groups of 20 members, and counts the other 38.

    Two groups come first: group-48 completes a rebalance, group-49 has two coordinators.
    """
    groups = {f"group-{n}": [group(0)] for n in range(50)}
    groups["group-48"] = [group(1, "CompletingRebalance")]
    groups["group-49"] = [group(1), group(2)]
    lines = lines_of(progress(status(groups)), width)
    text = "\n".join(lines)
    # In 40 columns a group needs two or more lines, but the panel still fits a tall terminal.
    assert len(lines) <= 45
    assert "group-48" in text
    assert "group-49" in text
    assert any(line.startswith("and 38 more groups, 38 of them Stable") for line in lines)


def test_many_brokers_are_counted_by_state() -> None:
    """The word `up` a hundred times would hide the two brokers that are down."""
    lines = lines_of(progress(status({}, brokers=100, down=(7, 8))), 80)
    assert " ".join(lines[BROKERS_LINE].split()) == "brokers 98 up: 0 to 6, 9 to 99 2 down: 7 and 8"


@pytest.mark.parametrize("width", WIDTHS)
def test_thousand_faults_show_those_in_force_and_the_next(width: int) -> None:
    """The panel shows eight of 1,000 faults: the last 4 past ones, one in force, and the next 3.

    It counts the others: 86 of the 90 past faults, and 906 of the 909 planned ones.
    """
    hit = FaultOutcome.HIT
    past = [fault(n, hit, fired_at_us=n * SECOND, healed_at_us=n * SECOND + 1) for n in range(90)]
    in_force = fault(90, hit, fired_at_us=(NOW_S - 1) * SECOND)
    first = 91  # planned one second from now; each further one, a second later
    to_come = [
        fault(n, planned_at_us=(NOW_S + 1 + n - first) * SECOND) for n in range(first, 1_000)
    ]
    lines = lines_of(progress(faults=(*past, in_force, *to_come)), width)
    text = " ".join(" ".join(lines).split())
    assert len(lines) <= 30  # the lines of a usual terminal
    for word in ("broker(90)", "in force", "1.000 s ago", "broker(91)", "in 1.000 s"):
        assert word in text, word
    assert "and 992 more faults: 86 healed, 906 planned" in text


@pytest.mark.parametrize("terminal", ["dumb", "unknown"])
def test_terminal_without_cursor_movement_gets_lines(
    terminal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a panel cannot be redrawn, it would be printed again and again, or never.

    A line is printed when the stage changes, so `steady` is printed only once.
    """
    monkeypatch.setenv("TERM", terminal)
    shown = Console(file=io.StringIO(), width=80, force_terminal=True)
    with run_view(shown, "small", "virtual") as view:
        view(progress(stage="steady"))
        view(progress(stage="steady"))
        view(progress(stage="faults"))
    assert isinstance(shown.file, io.StringIO)
    assert shown.file.getvalue() == "  100.000 s  steady\n  100.000 s  faults\n"


def test_line_of_a_fault_at_the_beginning_of_the_clock_has_its_own_time() -> None:
    """A fault at 0 us has the time 0, and not the time of the progress that shows it."""
    shown = Console(file=io.StringIO(), width=80)
    with run_view(shown, "small", "virtual") as view:
        view(progress(stage="faults", faults=(fault(0, FaultOutcome.HIT, fired_at_us=0),)))
    assert isinstance(shown.file, io.StringIO)
    (fault_line, stage_line) = shown.file.getvalue().splitlines()
    assert fault_line.startswith("    0.000 s  ")
    assert stage_line == "  100.000 s  faults"


def test_names_with_brackets_are_printed_as_they_are() -> None:
    """Rich takes [x] for markup, but a target or an error may contain such a text."""
    shown = Console(file=io.StringIO(), width=80)
    entry = fault(0, FaultOutcome.MISSED, fired_at_us=SECOND)
    entry.error = "[red]nobody[/] is there"
    with run_view(shown, "small", "virtual") as view:
        view(progress(faults=(entry,)))
    assert isinstance(shown.file, io.StringIO)
    assert "hit nothing: [red]nobody[/] is there" in shown.file.getvalue()
