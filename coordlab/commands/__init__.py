"""The commands, one module or one folder each: arguments in, exit code out.

In a folder, `command` declares the options and does the work; the other modules query clusters or
print. To add a command: its module here, with a function `<name>_command`, and a line in COMMANDS
of `coordlab.cli`.
"""
