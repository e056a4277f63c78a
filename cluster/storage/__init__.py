"""A broker's disk as real files: append-only logs, checkpoints, and recovery after a crash.

Reading order: `files` (the system calls), `log_file` (the format), `flush_marks` (the part of a log
that survives a power loss), `checkpoint_files`, `file_storage`, `recovery_report`, `compression`
(codecs).
"""
