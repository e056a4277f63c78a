"""The live panel of a run: it fits a terminal for any size of the cluster, and needs no colour.

While a run goes on, the panel shows its stage, brokers, groups and faults, and is drawn again
several times a second. In all these tests the run has lasted NOW_S seconds.
"""

import io

import pytest
from msgspec import structs
from rich.console import Console

from chaos.run.runner import STAGES, Progress
from cluster.runtime import ClusterStatus, GroupStatus, MemberStatus
from coordlab.views.run_view import run_panel, run_view
from protocol.ids import BrokerId, NodeName
from results_schema.journal import FaultOutcome, JournalEntry

SECOND = 1_000_000
WIDTHS = (40, 80, 120)
NOW_S = 100
# Line 0 of the panel has the names of the experiment and of the runtime. The next lines have:
STAGE_LINE = 1
BROKERS_LINE = 2


def printed_on(console: Console) -> str:
    """Return what was printed on a console whose file is a buffer."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def lines_of(current: Progress, width: int) -> list[str]:
    """Return the panel's lines, after a check that none is wider than the terminal."""
    shown = Console(file=io.StringIO(), width=width, no_color=True)
    shown.print(run_panel("small", "ray", current, width))
    lines = [line.rstrip() for line in printed_on(shown).splitlines()]
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
    """Return the reports of `count` members of a group, which all know this coordinator."""
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
    """Return a status in which each group has twenty members.

    All members know broker 0 as their coordinator. `groups` has what the coordinators themselves
    report about each group. In a split brain two brokers report the same group.
    """
    ids = [BrokerId(n) for n in range(brokers)]
    members_of_all_groups: dict[NodeName, MemberStatus] = {}
    for group_id in groups:
        members_of_all_groups |= members(group_id, count=20, coordinator=0)
    return ClusterStatus(
        brokers_alive={broker: broker not in down for broker in ids},
        brokers_fenced=dict.fromkeys(ids, False),
        groups=groups,
        members=members_of_all_groups,
    )


def fault(number: int, outcome: FaultOutcome = FaultOutcome.PLANNED, **more: int) -> JournalEntry:
    """Return a crash of broker `number`, as the run's journal records it.

    Its id is `crash-0.7`, for example, because it is repetition 7 of the first fault of a plan.
    `more` sets other fields of the entry.
    """
    entry = JournalEntry(
        fault_id=f"crash-0.{number}",
        fault="crash",
        target=f"broker({number})",
        duration_us=SECOND,
        outcome=outcome,
    )
    return structs.replace(entry, **more)


def progress(
    cluster: ClusterStatus | None = None,
    faults: tuple[JournalEntry, ...] = (),
    stage: str = "faults",
) -> Progress:
    """Return the progress of a run at NOW_S."""
    return Progress(stage=stage, time_us=NOW_S * SECOND, status=cluster, faults=faults)


@pytest.mark.parametrize("stage", STAGES)
def test_present_stage_is_visible_without_colour(stage: str) -> None:
    """A line lists all stages, with the present stage in brackets.

    A narrow terminal shows only the present stage, such as `faults (stage 3 of 8)`.
    """
    assert f"[{stage}]" in lines_of(progress(stage=stage), 80)[STAGE_LINE]
    assert lines_of(progress(stage=stage), 40)[STAGE_LINE].startswith(f"{stage} (stage ")


@pytest.mark.parametrize("width", WIDTHS)
def test_split_brain_shows_both_coordinators_with_whole_words(width: int) -> None:
    """The state of a group is the important word, so it is never truncated."""
    reports = [
        group(coordinator=0, state="PreparingRebalance", members=8),
        group(coordinator=2, state="Stable"),
    ]
    text = _words_of(lines_of(progress(status({"readers": reports})), width))
    # The last text says that all twenty members know broker 0 as the coordinator.
    for part in ("PreparingRebalance", "Stable", "broker 0", "broker 2", "20 x broker 0"):
        assert part in text, part


def _words_of(lines: list[str]) -> str:
    """Return the words of all lines, separated by single blanks."""
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("width", WIDTHS)
def test_fifty_groups_show_those_that_are_not_stable_first(width: int) -> None:
    """The screen shows 12 of the 50 groups, and says that there are 38 more.

    Two groups come first, because they are not simply Stable: group-48 completes a rebalance, and
    group-49 has two coordinators.
    """
    groups = {f"group-{n}": [group(0)] for n in range(50)}
    groups["group-48"] = [group(1, "CompletingRebalance")]
    groups["group-49"] = [group(1), group(2)]
    lines = lines_of(progress(status(groups)), width)
    text = "\n".join(lines)
    # In 40 columns each group needs two or more lines, but the panel still fits a tall terminal.
    assert len(lines) <= 45
    assert "group-48" in text
    assert "group-49" in text
    assert any(line.startswith("and 38 more groups, 38 of them Stable") for line in lines)


def test_many_brokers_are_counted_by_state() -> None:
    """The word `up` a hundred times would hide the two brokers that are down."""
    lines = lines_of(progress(status({}, brokers=100, down=(7, 8))), 80)
    words = _words_of([lines[BROKERS_LINE]])
    assert words == "brokers 98 up: 0 to 6, 9 to 99 2 down: 7 and 8"


@pytest.mark.parametrize("width", WIDTHS)
def test_thousand_faults_show_those_in_force_and_the_next(width: int) -> None:
    """The panel shows eight of 1,000 faults: the last 4 past faults, one in force, and the next 3.

    It counts the faults that it does not show: 90 - 4 = 86 past faults, and 909 - 3 = 906 planned
    faults, together 992.
    """
    hit = FaultOutcome.HIT
    past = [fault(n, hit, fired_at_us=n * SECOND, healed_at_us=n * SECOND + 1) for n in range(90)]
    in_force = fault(90, hit, fired_at_us=(NOW_S - 1) * SECOND)
    # Fault 91 is planned for one second from now, and each further fault for a second later.
    planned = [fault(n, planned_at_us=(NOW_S + n - 90) * SECOND) for n in range(91, 1_000)]
    lines = lines_of(progress(faults=(*past, in_force, *planned)), width)
    text = _words_of(lines)
    assert len(lines) <= 30  # the lines of a usual terminal
    for part in ("broker(90)", "in force", "1.000 s ago", "broker(91)", "in 1.000 s"):
        assert part in text, part
    assert "and 992 more faults: 86 healed, 906 planned" in text


@pytest.mark.parametrize("terminal", ["dumb", "unknown"])
def test_terminal_without_cursor_movement_gets_lines(
    terminal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that cannot move its cursor gets a line for each change, and no panel.

    Each drawing of a panel would appear below the last drawing. A change is, for example, a new
    stage: `steady` is printed only once.
    """
    monkeypatch.setenv("TERM", terminal)
    shown = Console(file=io.StringIO(), width=80, force_terminal=True)
    with run_view(shown, "small", "virtual") as view:
        view(progress(stage="steady"))
        view(progress(stage="steady"))
        view(progress(stage="faults"))
    assert printed_on(shown) == "  100.000 s  steady\n  100.000 s  faults\n"


def test_line_of_a_fault_at_the_beginning_of_the_clock_has_its_own_time() -> None:
    """A fault at 0 s has this time in its line, and not the time at which the view shows it.

    The view would show its own time if the code took a time of 0 for a missing time.
    """
    shown = Console(file=io.StringIO(), width=80)
    with run_view(shown, "small", "virtual") as view:
        view(progress(stage="faults", faults=(fault(0, FaultOutcome.HIT, fired_at_us=0),)))
    (fault_line, stage_line) = printed_on(shown).splitlines()
    assert fault_line.startswith("    0.000 s  ")
    assert stage_line == "  100.000 s  faults"


def test_names_with_brackets_are_printed_as_they_are() -> None:
    """Rich takes [x] for markup, but a target or an error may contain such a text."""
    shown = Console(file=io.StringIO(), width=80)
    entry = fault(0, FaultOutcome.MISSED, fired_at_us=SECOND)
    entry.error = "[red]nobody[/] is there"
    with run_view(shown, "small", "virtual") as view:
        view(progress(faults=(entry,)))
    assert "hit nothing: [red]nobody[/] is there" in printed_on(shown)
