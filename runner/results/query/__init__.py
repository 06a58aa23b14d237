"""`dlscale query`: SQL over everything on file. Nothing is written, and SQL reaches no file and no network: tables are filled before it runs.

`columns` turns the types of records into columns, `tables` says which tables there are, `database` fills them, `flow` asks and prints.
"""
