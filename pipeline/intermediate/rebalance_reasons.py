"""What our coordinator writes as the cause of a rebalance, sorted into a few words to count.

Patterns that mean the same to Spark and to Python.
"""

REASONS = (
    (r" expired: ", "session expiry"),
    (r"^static member ", "static member back"),
    (r" joined(;|$)", "join"),
    (r" left(;|$)", "leave"),
    (r" changed its metadata", "changed metadata"),
    (r" rejoined", "rejoin"),
    (r"^no SyncGroup from ", "no SyncGroup"),
    (r"^the assignment could not be stored", "assignment not stored"),
    (r"group\.max\.size", "group too large"),
)
"""Patterns of REBALANCE_STARTED's cause, the first that fits wins, and what they are called."""
OTHER_REASON = "other"
CLIENT_REASON = r"client reason: (?!not provided$)(.*)$"
"""A client that gave no reason has Kafka's coordinator write "not provided"."""
STORE_ERROR = r"^the assignment could not be stored: (.*)$"
REPLACED = "static member "
"""Begins the cause of a static member's change of ids: nobody came, nobody went."""
