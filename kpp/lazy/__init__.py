"""Tables that do not fit into memory, and independent tasks: one Dask task for each block of rows or replication.

Explanations of such tables are backed by Dask arrays. Dask is imported on use.
"""
