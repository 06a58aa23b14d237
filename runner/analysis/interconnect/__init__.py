"""Evidence → the transport that carried the gradients, compared with the requested one. Pure."""
