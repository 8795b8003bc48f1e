"""What goes wrong on purpose: killed processes, flipped bits, hostile files, planted errors."""
