"""What a status says beyond its phase: conditions, times, columns of kubectl, cost. Pure. Open `conditions` first."""
