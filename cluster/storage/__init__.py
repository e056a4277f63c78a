"""A broker's disk as real files: append-only logs, checkpoints, and recovery after a crash.

Reading order: `files` (the system calls), `log_file` (the format), `flush_marks` (bytes that a
power loss takes), `checkpoint_files`, `file_storage`, `recovery_report`, `compression` (codecs).
"""
