"""Types that all rooms share: requests, trials, container specs, events, records, errors, units. Imports no other room."""
