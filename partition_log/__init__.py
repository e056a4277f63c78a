"""The replicated log of one partition: batches, leader epochs, high watermark, ISR.

Pure state machines: no I/O but through Storage, no clock, no randomness. Reading order: `storage`,
`batches`, `epochs`, `log`, `replica` (leader and follower of one partition), `invariants`.
"""
