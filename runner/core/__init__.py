"""What all rooms speak: requests, trials, container specs, events, records, errors, units. Imports no other room."""
