"""onelabel: one label per image in, every label out."""

__version__ = "0.1.0"
