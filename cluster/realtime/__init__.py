"""The common part of the runtimes in real time, such as Hosts on an asyncio loop and TCP links.

A runtime runs the nodes of a cluster (brokers, controllers, clients); in real time they are
processes, not parts of a simulation. A Host is a node's only access to clock, network and disk.

Reading order:
1. `clock` has one time line for all processes. `host` is the Host in real time, `tcp` has the links
   between processes.
2. `process` hosts nodes in one operating-system process. It uses `failures` (failures of this
   program itself) and `listening` (addresses of brokers' listeners for Kafka clients).
3. `services` controls such a process from outside, and one machine. `machine_processes` has the
   signals and files of a machine.
4. `listeners_file` and `outside_client` are for a client in another process.
5. `runtime` has RealtimeRuntime.
"""
