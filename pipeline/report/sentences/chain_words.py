"""Each chain of phases of a fault as a sentence: what took the time, and which setting decides it.

The sentence is about one subject, the median one: half of them got there sooner. Phases of
one subject follow one another, so they may be compared with its whole; those of different
subjects, or of the two chains, may not. Pure functions over rows of `broker_phases`,
`client_phases` and `availability`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.report.charts.chart import TextTable
from pipeline.report.report_input import Row, Settings
from pipeline.summary.figures import FaultSummary, duration_text
from pipeline.summary.outcomes import listed
from pipeline.summary.story import counted, office_name

BROKER_STEPS = (
    ("detect", "fault_us", "decided_us"),
    ("publish", "decided_us", "applied_us"),
    ("load wait", "applied_us", "load_started_us"),
    ("load", "load_started_us", "active_us"),
)
"""Each phase of the broker chain with the moments of `broker_phases` that bound it."""
CLIENT_STEPS = (
    ("notice", "fault_us", "unknown_us"),
    ("rediscover", "unknown_us", "named_us"),
    ("accept", "named_us", "accepted_us"),
)
"""The same of the client chain: join and sync, where they were needed, lie within these."""
_LOOKUP = "FindCoordinator answer"
_NEARLY_ALL = 0.8
"""A phase that took this part of the whole is named alone."""
_GONE = {
    "crash": "that {node} was gone",
    "node_loss": "that {node} was gone",
    "power_loss": "that {node} was gone",
    "pause": "that {node} no longer sent heartbeats",
    "cut": "that {node} no longer reached it",
    "clog": "that {node} no longer reached it",
    "slow": "that {node} no longer reached it in time",
}
"""Kinds of fault that nobody announces: the controller has to notice a silence."""


@dataclass(frozen=True, slots=True)
class Path:
    """How one subject came through a chain: its phases, in order, each from one moment to the next.

    Units: microseconds on the run's clock. Only phases whose both ends are known are in it.
    """

    row: Row
    steps: tuple[tuple[str, int, int], ...]

    @property
    def whole_us(self) -> int:
        """From the fault to the end of the last phase."""
        return self.steps[-1][2] - self.steps[0][1]

    @property
    def by_length(self) -> list[tuple[str, int]]:
        """The phases with their lengths, the longest first."""
        return sorted(((name, to - begin) for name, begin, to in self.steps), key=lambda s: -s[1])


def paths(
    rows: Sequence[Row], steps: Sequence[tuple[str, str, str]], *, subject: str
) -> list[Path]:
    """Return the subjects that came through a whole chain, the fastest first."""
    last = steps[-1][2]
    found = []
    for row in sorted(rows, key=lambda row: (row[last] or 0, str(row[subject]))):
        spans = tuple((name, row[begin], row[end]) for name, begin, end in steps)
        if all(begin is not None and end is not None for _, begin, end in spans):
            found.append(Path(row, spans))
    return found


def middle_path(found: Sequence[Path]) -> Path:
    """Return the one in the middle (nearest rank): a non-empty sequence."""
    return found[(len(found) - 1) // 2]


def with_groups(broker_rows: Sequence[Row]) -> Sequence[Row]:
    """Return the offsets partitions in which a group lives, all of them if there is none."""
    return [row for row in broker_rows if row["groups"]] or broker_rows


def broker_sentence(fault: FaultSummary, broker_rows: Sequence[Row], settings: Settings) -> str:
    """Tell what the time until a new coordinator was active went into."""
    if not broker_rows:
        return (
            "No leadership of an offsets partition moved: the coordinators stayed where they were."
        )
    rows = with_groups(broker_rows)
    found = paths(rows, BROKER_STEPS, subject="partition")
    if not found:
        return "No new coordinator became active before the run ended."
    path = middle_path(found)
    row = path.row
    where = office_name(row["new_leader"], row["leader_epoch"])
    of = f"{row['partition']}" + (f" ({listed(row['groups'])})" if row["groups"] else "")
    whole = f"until {where} was the active coordinator of {of}"
    late = len(rows) - len(found)
    more = f" {counted(late, 'partition')} had none before the run ended." if late else ""
    return f"{_shares(path, whole, _broker_steps(fault, path, settings))}{more}"


def _broker_steps(fault: FaultSummary, path: Path, settings: Settings) -> dict[str, str]:
    row = path.row
    old, new = row["old_leader"] or "the old leader", row["new_leader"]
    return {
        "detect": f"{_detect(fault, old)} (detect{_because(fault, settings)})",
        "publish": f"until {new} had learnt from the controller's metadata that it leads now "
        "(publish)",
        "load wait": f"until {new} began to load it, one load at a time (load wait)",
        "load": f"while {new} read {counted(row['records'] or 0, 'record')} from its log (load)",
    }


def _detect(fault: FaultSummary, old: str) -> str:
    kind = fault.kind or ""
    if kind in _GONE:
        noticed = _GONE[kind].format(node=fault.node or old)
        return f"until the controller noticed {noticed}"
    if kind == "controlled_shutdown":
        return f"until the controller had moved what {old} led, as {old} itself asked"
    return "until the controller had elected the new leader"


def _because(fault: FaultSummary, settings: Settings) -> str:
    """Name the settings that bound how late a silence is noticed."""
    if fault.kind not in _GONE:
        return ""
    said = [
        f"{name} = {value}"
        for name in ("broker.session.timeout.ms", "broker.heartbeat.interval.ms")
        if (value := settings.of_cluster(name)) is not None
    ]
    if not said:
        return ""
    return f"; {', '.join(said)}; counted from the last BrokerHeartbeat before the fault"


def client_sentence(fault: FaultSummary, client_rows: Sequence[Row]) -> str:
    """Tell what the time until a member was served again went into."""
    if not client_rows:
        return "No member of a group was affected."
    looked = [row for row in client_rows if row["unknown_us"] is not None]
    if not looked:
        number = counted(len(client_rows), "member")
        joined = sum(row["join_us"] is not None for row in client_rows)
        again = f" {joined:,} had to join the group again." if joined else ""
        return f"None of {number} had to look for a coordinator.{again}"
    found = paths(looked, CLIENT_STEPS, subject="consumer")
    if not found:
        number = counted(len(looked), "member")
        return f"Of {number} that gave their coordinator up, none was served again in this run."
    path = middle_path(found)
    whole = f"until {path.row['consumer']}, the median member of {len(found):,}, "
    text = _shares(path, f"{whole}was served by the new coordinator", _client_steps(path))
    late, stayed = len(looked) - len(found), len(client_rows) - len(looked)
    if late:
        text += f" {counted(late, 'member')} did not get there before the run ended."
    if stayed:
        text += f" {counted(stayed, 'member')} never gave the coordinator up."
    return text


def _client_steps(path: Path) -> dict[str, str]:
    row = path.row
    stale, attempts = row["stale_answers"] or 0, row["attempts"] or 0
    lookups = f"while it looked for the new one (rediscover; {counted(attempts, _LOOKUP)}"
    lookups += f", {stale:,} of them naming another broker)" if stale else ")"
    return {
        "notice": f"before it gave the old one up (notice; by {row['noticed_by']})",
        "rediscover": lookups,
        "accept": "from being told the new one to its first success there (accept)",
    }


def _shares(path: Path, whole: str, words: Mapping[str, str]) -> str:
    """Say how much of the whole the longest phase took, with the second if it is not nearly all."""
    (first, first_us), (second, second_us), *_ = path.by_length
    total = duration_text(path.whole_us)
    text = f"Of the {total} {whole}, {duration_text(first_us)} went by {words[first]}"
    if first_us < _NEARLY_ALL * path.whole_us and second_us:
        text += f", and {duration_text(second_us)} {words[second]}"
    return f"{text}."


def gap_sentence(fault: FaultSummary, rows: Sequence[Row]) -> str | None:
    """Tell what a fault was to those who use the groups; None: nothing was measured.

    Shape: `rows` are the fault's rows of `availability`.
    """
    commit, processing, hole = (
        fault.distribution(name) for name in ("commit gap", "processing gap", "no coordinator")
    )
    told = []
    if commit is not None and commit.samples:
        told.append(
            f"the median of {counted(commit.samples, 'member')} had no commit acknowledged for "
            f"{duration_text(commit.percentiles[50])}, the worst for {commit.longest_text}"
        )
    if processing is not None and processing.samples:
        told.append(
            f"the longest time in which nobody read a partition was {processing.longest_text}"
        )
    if hole is not None and hole.maximum and fault.partitions_moved:
        told.append(f"a group had no active coordinator for {hole.longest_text}")
    never = [row["subject"] for row in rows if row["gap_us"] is None]
    if never:
        told.append(f"{listed(never)} never came back before the run ended")
    if not told:
        return None
    text = "; ".join(told)
    if len(told) > 1 or not never:  # a name stays what it is
        text = f"{text[0].upper()}{text[1:]}"
    return f"{text}."


_BROKER = (
    ("detect", "fault injected", "the controller fences the broker, or moves the leadership"),
    ("publish", "the controller decided", "the new leader applied it from the metadata log"),
    ("load wait", "the new leader applied it", "its load task starts: a broker runs one at a time"),
    ("load", "the load task starts", "the coordinator is active: groups and offsets are read"),
)
_CLIENT = (
    ("notice", "fault injected", "the member marks its coordinator unknown"),
    ("rediscover", "coordinator unknown", "FindCoordinator names the newest coordinator"),
    (
        "accept",
        "the newest coordinator named",
        "the member's first success there (join and sync lie within)",
    ),
    ("join", "first JoinGroup sent", "first JoinGroup that succeeded; only members that had to"),
    ("sync", "first SyncGroup sent", "first SyncGroup that succeeded; only members that had to"),
    ("longest wait", "a request sent to the old coordinator", "its answer or failure: the longest"),
    (
        "stale answers",
        "coordinator unknown",
        "named: FindCoordinator answers that named another broker",
    ),
    (
        "heartbeats at old",
        "the new coordinator is active",
        "heartbeats that the old one still answered with success",
    ),
)
_GAPS = (
    ("commit gap", "a member's acknowledged commit", "its next one: the longest around the fault"),
    (
        "processing gap",
        "a batch of a partition processed by anybody in the group",
        "work on its next one begins: the longest around the fault",
    ),
    (
        "no coordinator",
        "the group's last active coordinator",
        "its next active one; 0: there was always one",
    ),
)


def definitions() -> TextTable:
    """Return what each measure of the section is, folded away."""
    chains = (("broker", _BROKER), ("client", _CLIENT), ("without service", _GAPS))
    return TextTable(
        headings=("chain", "phase", "from", "to"),
        rows=tuple((chain, *measure) for chain, measures in chains for measure in measures),
        folded="What each phase measures",
    )
