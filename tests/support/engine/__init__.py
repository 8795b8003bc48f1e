"""An executor that starts no process, a pipeline and a format of tests' own."""
