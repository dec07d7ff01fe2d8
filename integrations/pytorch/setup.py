"""Builds the extension with the PyTorch that is installed, against libalnico.so: the file that
ALNICO_LIBRARY names, with the header of this source tree, or what pkg-config finds."""

import os
import pathlib
import shlex
import subprocess

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

here = pathlib.Path(__file__).parent.resolve()


def library():
    named = os.environ.get("ALNICO_LIBRARY")
    if not named:
        flags = subprocess.check_output(["pkg-config", "--cflags", "--libs", "alnico"], text=True)
        flags = shlex.split(flags)
        folders = [flag[2:] for flag in flags if flag.startswith("-L")]
        includes = [flag for flag in flags if flag.startswith("-I")]
        return includes, [flag for flag in flags if flag not in includes], folders
    path = pathlib.Path(named).resolve()
    include = os.environ.get("ALNICO_INCLUDE", str(here.parents[1] / "include"))
    return ["-I" + include], [str(path)], [str(path.parent)]


includes, links, folders = library()
setup(
    ext_modules=[
        CppExtension(
            "alnico_torch._C",
            sorted(str(path.relative_to(here)) for path in here.glob("csrc/*.cpp")),
            extra_compile_args=[*includes, "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter"],
            extra_link_args=[*links, *("-Wl,-rpath," + folder for folder in folders)],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
