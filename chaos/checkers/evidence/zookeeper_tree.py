"""The tree of a ZooKeeper ensemble and its sessions, computed from the transactions in the trace.

ZooKeeper keeps a tree of znodes, which have paths like those of files. Its servers replicate the
tree: they all apply the same transactions in the same order, each server at its own time (ZK-02).
Every server writes a row when it applies a transaction. Here the transaction takes effect with the
first of these rows, and the others are ignored. A transaction has a number, its zxid, and later
transactions have higher ones.

Checkers ask what the tree looked like at some zxid. They look at the znodes of consumers, and above
all at the owner nodes. A consumer owns partition 0 of `orders` while it has the owner node
`/consumers/GROUP/owners/orders/0`. This znode is ephemeral: it is removed when the session of the
consumer ends (ZK-12).

Ids such as ZK-02 name the rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from chaos.checkers.context import detail_of
from protocol.trace import TraceKind, TraceRow

TREE_KINDS = frozenset({TraceKind.ZOOKEEPER_TXN_APPLIED, TraceKind.ZOOKEEPER_CLIENT_STATE})
"""Kinds of rows that ZooKeeperTree must see."""
CONSUMERS = "/consumers/"


def owner_path(group: str, partition: str) -> str:
    """Return the path of the owner node of a partition, such as `orders-0`."""
    topic, _, number = partition.rpartition("-")
    return f"{CONSUMERS}{group}/owners/{topic}/{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Znode:
    """A znode as some transaction has left it."""

    # The session with whose end an ephemeral znode is removed; None: the znode is not ephemeral
    session: str | None
    data: str
    row: TraceRow  # the row about the transaction


@dataclass(slots=True)
class _Path:
    """The history of one path: the transaction `zxids[i]` has left `znodes[i]` there.

    `znodes[i]` is None if the transaction removed the znode.
    """

    zxids: list[int] = field(default_factory=list)
    znodes: list[Znode | None] = field(default_factory=list)

    def put(self, zxid: int, znode: Znode | None) -> None:
        # Transactions come in the order of their zxids, so the list stays sorted.
        self.zxids.append(zxid)
        self.znodes.append(znode)

    def at(self, zxid: int) -> Znode | None:
        """Return what the last transaction up to `zxid` left at the path."""
        place = bisect_right(self.zxids, zxid)
        return self.znodes[place - 1] if place else None

    @property
    def now(self) -> Znode | None:
        return self.znodes[-1] if self.znodes else None


class ZooKeeperTree:
    """The znodes below `/consumers`, as they were after each transaction, and the sessions."""

    def __init__(self) -> None:
        self.last_zxid = 0
        self.sessions: dict[str, TraceRow] = {}
        """Open sessions, each with the row that opened it."""
        self.ended: dict[str, TraceRow] = {}
        """Sessions that are over, each with the row that ended it."""
        self.clients: dict[str, str] = {}
        """Session -> the client that has it."""
        self.is_news = False
        """True if the last row was the first one about its transaction."""
        self.problem: str | None = None
        """If the last transaction was illegal, a sentence about it."""
        self._paths: dict[str, _Path] = {}
        self._owned: dict[str, dict[str, None]] = {}  # session -> paths of its ephemeral znodes

    def observe(self, row: TraceRow) -> None:
        """Take a row of TREE_KINDS."""
        detail = detail_of(row)
        if row.kind == TraceKind.ZOOKEEPER_CLIENT_STATE:
            self.clients[detail["session"]] = row.node
            return
        zxid = row.offset or 0
        self.is_news = zxid > self.last_zxid
        self.problem = None
        if self.is_news:
            self.last_zxid = zxid
            self.problem = self._apply(row, zxid, detail)

    def at(self, path: str, zxid: int) -> Znode | None:
        """Return the znode at a path after the transaction `zxid`; None if there was none."""
        known = self._paths.get(path)
        return None if known is None else known.at(zxid)

    def now(self, path: str) -> Znode | None:
        """Return the znode at a path after the last transaction; None if there is none."""
        known = self._paths.get(path)
        return None if known is None else known.now

    def children(self, parent: str, zxid: int) -> tuple[str, ...]:
        """Return the names of the znodes below `parent` after the transaction `zxid`, sorted."""
        return tuple(
            sorted(
                path[len(parent) + 1 :]  # without `parent` and its slash
                for path, known in self._paths.items()
                if path.startswith(f"{parent}/") and known.at(zxid) is not None
            )
        )

    def changes_of(self, parent: str, after: int, until: int) -> list[int]:
        """Return the zxids of transactions that changed a znode below `parent`.

        Only zxids above `after` and up to `until` are returned.
        """
        return sorted(
            {
                zxid
                for path, known in self._paths.items()
                if path.startswith(f"{parent}/")
                for zxid in known.zxids
                if after < zxid <= until
            }
        )

    def owned_by(self, session: str) -> tuple[str, ...]:
        """Return the paths of a session's ephemeral znodes."""
        return tuple(self._owned.get(session, ()))

    def _apply(self, row: TraceRow, zxid: int, detail: dict[str, object]) -> str | None:
        """Apply a transaction; return a sentence if it is illegal."""
        session, op, path = str(detail["session"]), detail["op"], str(detail.get("path"))
        match op:
            case "createSession":
                self.sessions[session] = row
                return None
            case "error":
                # ZooKeeper gives a refused request a zxid, too. But such a request changes nothing.
                return None
            case _ if session not in self.sessions:  # any other transaction needs an open session
                return f"{op} {detail.get('path') or ''} of session {session}, which is not open"
            case "closeSession":
                self.ended[session] = row
                del self.sessions[session]
                for owned in self._owned.pop(session, {}):
                    self._paths[owned].put(zxid, None)
                return None
            case _:
                return self._write(row, zxid, session, path, detail)

    def _write(
        self, row: TraceRow, zxid: int, session: str, path: str, detail: dict[str, object]
    ) -> str | None:
        """Apply a create, setData or delete; return a sentence if it is illegal."""
        if not path.startswith(CONSUMERS):  # no checker needs other znodes
            return None
        known = self._paths.setdefault(path, _Path())
        before = known.now
        # A create is legal only if no znode is at the path, a setData or delete only if one is.
        if (detail["op"] == "create") != (before is None):
            return f"{detail['op']} {path}, which {'exists' if before else 'does not exist'}"
        if before is not None and before.session is not None and detail["op"] == "delete":
            self._owned.get(before.session, {}).pop(path, None)
        match detail["op"]:
            case "create":
                owner = session if detail["ephemeral"] else None
                if owner is not None:
                    self._owned.setdefault(owner, {})[path] = None
                known.put(zxid, Znode(session=owner, data=str(detail["data"]), row=row))
            case "setData":
                owner = None if before is None else before.session
                known.put(zxid, Znode(session=owner, data=str(detail["data"]), row=row))
            case _:
                known.put(zxid, None)
        return None
