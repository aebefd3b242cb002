"""netCDF files, Zarr stores and JSON descriptions: what strangers wrote is checked before anything is decoded."""
