"""The version of the library that the package is made for."""

__version__ = "0.1.0"
