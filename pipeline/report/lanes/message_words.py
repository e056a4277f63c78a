"""How the message diagrams name requests and what became of them: in Kafka's words."""

from pipeline.report.run_tables import Row

SUCCESS = "NONE"
EXPECTED = frozenset(
    {"MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"}
)
"""Errors by name that the protocol itself consists of: nothing failed."""
EXPELLED = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"})
"""Errors by which a member learns that its group goes on without it."""
_NOT_ANSWERED = {
    "TIMED_OUT": "no answer (request timeout)",
    "DISCONNECTED": "disconnected",
    "no answer": "no answer",
}
"""What became of requests without answer: these are no error codes of Kafka's."""


def unanswered(row: Row) -> bool:
    """Return whether no answer reached who asked."""
    return row["outcome"] in _NOT_ANSWERED


def failed(row: Row) -> bool:
    """Return whether an exchange failed: neither success nor an answer that is to be expected."""
    return row["outcome"] != SUCCESS and row["outcome"] not in EXPECTED


def outcome_words(row: Row) -> str:
    """Return what became of an exchange: `success`, Kafka's error name, or that no answer came."""
    outcome: str = row["outcome"]
    return "success" if outcome == SUCCESS else _NOT_ANSWERED.get(outcome, outcome)


def request_words(row: Row) -> str:
    """Return a request's name; a fetch from a controller is one of the metadata log."""
    api: str = row["api"]
    of_metadata = api == "Fetch" and row["to_node"].startswith("controller-")
    return "Fetch (__cluster_metadata)" if of_metadata else api
