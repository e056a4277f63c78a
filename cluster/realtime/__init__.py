"""The common part of the runtimes in real time, such as Hosts on an asyncio loop and TCP links.

A runtime runs the nodes of a cluster (brokers, controllers, clients); in real time they are
processes, not parts of a simulation. A Host is a node's only access to clock, network and disk.

Reading order: `clock` (one time line for all processes), `host`, `tcp`, `failures` (failures of
the tool itself), `listening` (addresses of brokers' listeners for Kafka clients), `process` (nodes
in one operating-system process), `services` (remote control of such a process, and of a machine),
`machine_processes` (signals and files of one machine), `listeners_file` and `outside_client` (a
client in another process), `runtime` (RealtimeRuntime).
"""
