"""The vote of a group's members for the protocol of a generation.

A protocol is a way to assign partitions to members, such as "range". Each member votes for one
protocol. If two protocols have equally many votes, Kafka takes the protocol that comes first in a
Scala HashMap. The order of such a map looks arbitrary, but it is fixed: the same names always have
the same order. This module computes Scala's order. Tests compare this coordinator with recordings
of real Kafka, so it must choose the same protocol.

Source: Kafka `GroupMetadata.selectProtocol`, Scala 2.13 `immutable.HashMap`;
docs/kafka/BEHAVIOUR.md 4.5.
"""

from collections.abc import Iterable

from protocol.partitioner import java_string_hash

_BITS_PER_LEVEL = 5  # each level of Scala's trie uses 5 bits of the hash
_HASH_BITS = 32


def most_votes(votes: Iterable[str]) -> str:
    """Return the name with the most votes. On a tie, return the first in Scala's order.

    There must be at least one vote. Example: ["range", "sticky", "range"] -> "range".
    """
    counts: dict[str, int] = {}
    for name in votes:
        counts[name] = counts.get(name, 0) + 1
    most = max(counts.values())
    leading = [name for name, count in counts.items() if count == most]
    # Kafka's map has every name with a vote as a key. A further key can change the order of two
    # other keys, so `scala_order` gets all names, not only the leading names.
    return leading[0] if len(leading) == 1 else scala_order(leading, among=counts)[0]


def scala_order(names: Iterable[str], *, among: Iterable[str]) -> list[str]:
    """Return `names` in the order in which a Scala HashMap with the keys `among` has them."""
    # The map is a trie. Its root node has 32 places, and five bits of a key's hash are the number
    # of the key's place. If several keys have the same place, a node of the next level is there, in
    # which the next five bits are the number of the place. An iteration over a node yields first
    # the keys that are alone at their places, then the keys of the nodes below.
    wanted = dict.fromkeys(names)  # used as a set
    hashes = {name: _improve(java_string_hash(name)) for name in among}
    return [name for name in _trie_order(list(hashes), hashes, 0) if name in wanted]


def _trie_order(names: list[str], hashes: dict[str, int], shift: int) -> list[str]:
    """Return the names of a trie node in Scala's order.

    The node uses the five bits of the hash that begin at bit `shift`.
    """
    if shift >= _HASH_BITS:
        return names  # the hashes are equal: Scala then keeps the order of insertion
    places: dict[int, list[str]] = {}
    for name in names:
        # The place is the number in the five bits of the hash from bit `shift` on.
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
    # The shifts are Scala's. The mask keeps the 32 bits that a Java int has.
    mask = (1 << _HASH_BITS) - 1
    value = java_hash & mask
    value = (value + ~(value << 9)) & mask
    value ^= value >> 14
    value = (value + (value << 4)) & mask
    return value ^ (value >> 10)
