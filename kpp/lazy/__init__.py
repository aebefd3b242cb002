"""Tables that do not fit into memory, and independent tasks: one Dask task for each block of rows or replication.

Explanations of such tables are backed by Dask arrays. Dask is imported on use.
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
from kpp.lazy.schedulers import complete_all as complete_all
from kpp.lazy.schedulers import waiting_for_threads as waiting_for_threads
from kpp.lazy.tasks import map_numbers as map_numbers
from kpp.lazy.traveling import TravelingFunction as TravelingFunction
