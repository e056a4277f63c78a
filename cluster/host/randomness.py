"""Random streams: one random number generator for each use of random numbers in a run.

Each stream is derived from the run's seed and from labels, such as the name of a node. With one
generator for the whole run, one more number that is drawn for a fault would change all later
numbers in the run. With many streams, it changes only the later numbers of its own stream.
"""

import random
from hashlib import blake2b


def stream(seed: int, *labels: str | int) -> random.Random:
    """Return a new generator for `labels`; equal seeds and labels give equal numbers.

    Different labels give independent numbers, even if they look alike when joined: ("a", "bc") and
    ("ab", "c") are different, and so are (1,) and ("1",).
    """
    digest = blake2b(digest_size=16)  # 16 bytes are far more than needed to tell streams apart
    for part in (seed, *labels):
        # The type and the length make the encoding unique. `hash` would not do instead, because it
        # differs between processes.
        text = str(part).encode()
        digest.update(f"{type(part).__name__}:{len(text)}:".encode())
        digest.update(text)
    return random.Random(int.from_bytes(digest.digest(), "big"))
