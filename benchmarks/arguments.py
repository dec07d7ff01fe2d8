"""What the arguments of the scripts here have in common."""
import argparse


def above(kind):
    """A number above 0, of `kind` int or float."""
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text}: expected a {'whole ' if kind is int else ''}number above 0")
        return value
    return read


def require_writable(parser, out):
    """Ends the program if --out names a file that lines cannot be appended to; None: it was not given."""
    try:
        if out:
            open(out, "a").close()
    except OSError as error:
        parser.error(f"--out {out}: {error.strerror}")
