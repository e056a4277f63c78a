"""Random streams: one generator per purpose, derived from the run's seed by name.

Each link and each node incarnation has a stream of its own. With a single stream, a draw for one
fault would change all later draws of the run.
"""

import random
from hashlib import blake2b


def stream(seed: int, *labels: str | int) -> random.Random:
    """Return a new generator for the purpose that `labels` name; equal for equal seeds and labels.

    Two different sequences of labels give independent streams: ("a", "bc") is not ("ab", "c").
    """
    digest = blake2b(digest_size=16)  # 16 bytes are far more than needed to tell streams apart
    for part in (seed, *labels):
        # The type and the length come before the text, so that different sequences of labels have
        # different encodings. hash() and repr() are not used, because they may differ between
        # processes.
        text = str(part).encode()
        digest.update(f"{type(part).__name__}:{len(text)}:".encode())
        digest.update(text)
    return random.Random(int.from_bytes(digest.digest(), "big"))
