"""Stand-ins for stores and for the Hub: emulators, fakes, proxies with faults, and the contract of a store."""
