"""`init`: writes a new experiment file. `command` fills in the texts of `templates`."""
