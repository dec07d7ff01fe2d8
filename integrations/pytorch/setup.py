"""Builds the extension with the PyTorch that is installed, against libalnico.so: the file that
ALNICO_LIBRARY names, with the header of this source tree, or what pkg-config finds.

The extension uses the C++ library that PyTorch has loaded, whatever the compiler would link: two of
them in one process format text with each other's locales, and lose it. It exports PyInit__C only."""

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


def standard_library():
    """The file of libstdc++ in this process, which has imported PyTorch."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/libstdc++.so" in line}
    return sorted(paths)


includes, links, folders = library()
setup(
    ext_modules=[
        CppExtension(
            "alnico_torch._C",
            sorted(str(path.relative_to(here)) for path in here.glob("csrc/*.cpp")),
            extra_compile_args=[
                *includes,
                *("-O2", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
                *("-Wall", "-Wextra", "-Wno-unused-parameter"),
            ],
            extra_link_args=[
                *links,
                *("-Wl,-rpath," + folder for folder in folders),
                f"-Wl,--version-script={here / 'csrc' / 'exports.map'}",
            ],
            extra_objects=standard_library(),
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
