"""One file a command: its options, its words turned into a request, and the room called that does the work."""
