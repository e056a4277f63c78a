"""For every runtime in real time: the Host on an asyncio loop, TCP links, and clients from outside.

Reading order: `clock` (one time line for all processes), `host`, `tcp`, `failures` (of the tool
itself), `listening` (where brokers listen for Kafka clients),
`process` (nodes that share an operating-system process), `services` (what commands such a
process, and its machine), `machine_processes` (signals and files of one machine), `listeners_file`
and `outside_client` (how another process joins), `runtime` (what every run in real time has).
"""
