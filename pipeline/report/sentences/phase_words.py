"""What each phase and figure of the chains measures: from which event to which, in one table."""

from pipeline.report.charts.chart import TextTable

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
        "a batch of a partition, consumed by anybody in the group",
        "its next one: the longest around the fault",
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
