"""`dlscale query`: SQL over everything on file. Nothing is written, and SQL reaches no file and no network: tables are filled before it runs.

`tables` turns the types of records into tables, `database` fills them and keeps their rows between queries.
"""
