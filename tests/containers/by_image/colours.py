"""Three classes of one colour each and their expected pixels in all frameworks; also as JPEGs, for a framework that decodes but can't encode them.

A library, not a script.
"""

import base64

COLOURS = {"blue": (0, 0, 254), "green": (0, 255, 1), "red": (254, 0, 0)}
CLASSES = sorted(COLOURS)
# (colour - mean) / deviation of ImageNet, computed by hand.
NORMALIZED = {"blue": (-2.118, -2.036, 2.623), "green": (-2.118, 2.429, -1.787), "red": (2.232, -2.036, -1.804)}

# JPEGs of 16x16 pixels of one colour: their common beginning, and the rest of each.
HEAD = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQoK"
    "CgoKBggLDAsKDAkKCgr/2wBDAQICAgICAgUDAwUKBwYHCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoK"
    "CgoKCgoKCgr/wAARCAAQABADAREAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAA"
)
TAILS = {
    "blue": "AAn/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QAFgEBAQEAAAAAAAAAAAAAAAAAAAcJ/8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/aAAwDAQACEQMRAD8Ajm38SsAAB//Z",
    "green": "AAf/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QAFQEBAQAAAAAAAAAAAAAAAAAAAAn/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oADAMBAAIRAxEAPwCsJXopgAAP/9k=",
    "red": "AAj/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QAFgEBAQEAAAAAAAAAAAAAAAAAAAgJ/8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/aAAwDAQACEQMRAD8Ai9KbfwAAB//Z",
}

JPEGS = {name: base64.b64decode(HEAD + tail) for name, tail in TAILS.items()}
