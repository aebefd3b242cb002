"""Explanations of tables that do not fit into memory: one Dask task for each block of rows.

The results are Explanations backed by Dask arrays. Dask is imported on use.
"""

from kpp.lazy.assembly import explain_blocks as explain_blocks
from kpp.lazy.assembly import first_block as first_block
from kpp.lazy.block_task import BlockTask as BlockTask
from kpp.lazy.block_task import run_block as run_block
from kpp.lazy.blocks import Blocks as Blocks
from kpp.lazy.blocks import is_chunked as is_chunked
from kpp.lazy.blocks import read_blocks as read_blocks
from kpp.lazy.blocks import refuse_bad_rows as refuse_bad_rows
from kpp.lazy.layout import Layout as Layout
