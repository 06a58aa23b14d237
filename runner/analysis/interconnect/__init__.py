"""Evidence → the transport that carried the gradients, held against the one that was requested. Pure."""
