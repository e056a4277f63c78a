"""The commands, one module or one folder each: arguments in, exit code out.

In a folder, `command` declares the options and does the work; the rest is shown or asked. To add a
command: its module here, with a function `<name>_command`, and a line in COMMANDS of
`coordlab.cli`.
"""
