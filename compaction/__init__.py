"""How a transcript shrinks: pure functions and dataclasses first, Django last. Knows transcripts, not their storage."""
