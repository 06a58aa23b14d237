"""`dlscale query`: SQL over everything on file. It writes nothing; SQL reaches no file and no network, since tables are filled before it runs.

`tables` turns the types of records into tables, `database` fills them and caches their rows between queries.
"""
