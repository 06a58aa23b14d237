"""Everything on file: run directories, records, tables, published figures, SQL over all of them."""
