"""The executor on a Ray cluster. The only room that imports Ray. Open `executor` first."""
