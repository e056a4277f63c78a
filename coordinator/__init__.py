"""Kafka's classic group coordinator as a pure state machine: inputs in, one Result out.

It must not know logs, sockets or clocks: appends are asked for and their completion comes back as
an input; what a log holds comes in as batches of a load. Reading order: `states`, `member`,
`group`, `offsets`, `shard` (the groups of one offsets partition), one module per API, `load`,
`coordinator` (the facade), `invariants`.
"""
