"""Files and stores: what is written appears at once or not at all, and what strangers wrote is checked first."""

from kpp.storage import zarr_store as zarr_store
