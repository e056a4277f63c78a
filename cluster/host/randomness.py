"""Random streams: one generator per purpose, derived from the run's seed by name.

A stream per link and per node incarnation, instead of one for all, keeps what one fault draws from
reshuffling the rest of the run.
"""

import random
from hashlib import blake2b


def stream(seed: int, *labels: str | int) -> random.Random:
    """Return the generator of the purpose that `labels` name, always the same for one seed.

    Two different sequences of labels give independent streams: ("a", "bc") is not ("ab", "c").
    """
    digest = blake2b(digest_size=16)
    for part in (seed, *labels):
        # type, length and text: an encoding that no two sequences share, and no hash() or repr.
        text = str(part).encode()
        digest.update(f"{type(part).__name__}:{len(text)}:".encode())
        digest.update(text)
    return random.Random(int.from_bytes(digest.digest(), "big"))
