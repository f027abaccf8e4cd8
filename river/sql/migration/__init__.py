"""The schema that River's jobs live in: one module per database, statements only.

Nothing here opens a connection or a transaction; whoever runs the statements does.
"""
