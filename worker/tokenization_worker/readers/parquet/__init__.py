"""Parquet: the text column, streamed. The only room that knows pyarrow. Open `reader` first."""
