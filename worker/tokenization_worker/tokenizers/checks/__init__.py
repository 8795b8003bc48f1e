"""Whether an engine, or another version of a library, gives the reference's tokens. Open `engine_check` first."""
