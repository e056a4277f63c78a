"""The commands, one module each: arguments in, exit code out. `coordlab.cli` puts them together.

Reading order: `options` (what several commands take), then any. What a command does stands in
modules of `coordlab` where it is more than a few lines.
"""
