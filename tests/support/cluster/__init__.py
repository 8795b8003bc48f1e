"""Jobs, operators and API servers for tests of the operator."""
