"""The commands, one module or one folder each: arguments in, exit code out.

In a folder, `command` declares the options and does the work; the other modules query clusters or
print. A new command needs a module here with a function `<name>_command`, and an entry in COMMANDS
and in SUMMARIES of `coordlab.cli`.
"""
