"""The detail of RECORDS_CONSUMED, the trace row of a consumer that has processed records.

The struct has a module of its own because mypyc compiles `processing`, and cannot compile a msgspec
Struct. The row's own `offset` is the offset of the first processed record.
"""

import msgspec


class Consumed(msgspec.Struct):
    """The detail of RECORDS_CONSUMED. `last` is the offset of the last processed record."""

    last: int


decode_consumed = msgspec.json.Decoder(Consumed).decode
