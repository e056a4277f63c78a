"""The vote of a group's members for the protocol of a generation.

A protocol is a way to assign partitions to members. Each member votes for one protocol. If several
protocols share the most votes, Kafka takes the first in the iteration order of a Scala
HashMap of protocol names. That order is arbitrary but fixed: the same names always give the same
protocol. Recordings of real Kafka depend on the order, so it is computed here as Scala computes it.
Source: Kafka `GroupMetadata.selectProtocol`, Scala 2.13 `immutable.HashMap`;
docs/kafka/BEHAVIOUR.md 4.5.
"""

from collections.abc import Iterable

from protocol.partitioner import java_string_hash

_BITS_PER_LEVEL = 5  # each level of Scala's trie looks at 5 bits of the hash: 2 ** 5 places
_HASH_BITS = 32


def most_votes(votes: Iterable[str]) -> str:
    """Return the name with the most votes; on a tie, the first in Scala's order.

    `votes` is non-empty.
    """
    counts: dict[str, int] = {}
    for name in votes:
        counts[name] = counts.get(name, 0) + 1
    most = max(counts.values())
    leading = [name for name, count in counts.items() if count == most]
    # The map in Kafka has every name with a vote as a key. The order of two of its keys can depend
    # on a third one, so `scala_order` gets all names.
    return leading[0] if len(leading) == 1 else scala_order(leading, among=counts)[0]


def scala_order(names: Iterable[str], *, among: Iterable[str]) -> list[str]:
    """Return `names` in the order in which a Scala HashMap with the keys `among` has them."""
    # The map is a trie. Each level looks at five more bits of a key's hash: they are the key's
    # place in the node. An iteration over a node yields first the keys that are alone at their
    # place, then the keys of the places that several keys share (each such place is a node of the
    # next level).
    wanted = dict.fromkeys(names)  # used as a set
    hashes = {name: _improve(java_string_hash(name)) for name in among}
    return [name for name in _trie_order(list(hashes), hashes, 0) if name in wanted]


def _trie_order(names: list[str], hashes: dict[str, int], shift: int) -> list[str]:
    """Return names in a trie node's order; bit `shift` is the first that the node looks at."""
    if shift >= _HASH_BITS:
        return names  # all bits are equal: Scala's collision node keeps the order of insertion
    places: dict[int, list[str]] = {}
    for name in names:
        # The place is the number in the next five bits of the hash.
        places.setdefault(hashes[name] >> shift & (1 << _BITS_PER_LEVEL) - 1, []).append(name)
    ordered = [places[index] for index in sorted(places)]
    alone = [place[0] for place in ordered if len(place) == 1]
    shared = [
        name
        for place in ordered
        if len(place) > 1
        for name in _trie_order(place, hashes, shift + _BITS_PER_LEVEL)
    ]
    return alone + shared


def _improve(java_hash: int) -> int:
    """Return Scala's `Hashing.improve` of a Java hash, as an unsigned 32-bit number."""
    # The shifts are Scala's. The mask does what the overflow of a Java int does.
    mask = (1 << _HASH_BITS) - 1
    value = java_hash & mask
    value = (value + ~(value << 9)) & mask
    value ^= value >> 14
    value = (value + (value << 4)) & mask
    return value ^ (value >> 10)
