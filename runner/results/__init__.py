"""Everything on file: run directories, records, tables, published figures, and SQL over them."""
