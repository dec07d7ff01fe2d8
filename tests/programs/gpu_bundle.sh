#!/bin/bash
# What scripts/gpu-bundle refuses, and the plain list of tests that it puts into a bundle, here of the mpi tests.
#
# Usage: gpu_bundle.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
build=$1 source=$2
bundle=$source/scripts/gpu-bundle

expect 2 "$bundle"
expect_err 'which FOLDER'
expect 2 "$bundle" a b
expect_err 'b: one FOLDER, and a is given'
expect 2 "$bundle" --mpi lam "$work/new"
expect_err '--mpi lam: expected openmpi or mpich'
expect 2 "$bundle" --bogus "$work/new"
expect_err '--bogus: no such option'
expect 2 "$bundle" "$work"
expect_err 'is not empty, and no earlier bundle'
expect 2 "$bundle" "$work/new" --work
expect_err '--work: which folder'
expect 2 "$bundle" "$work/new" --tests
expect_err '--tests: which'
expect 2 "$bundle" "$work/new" --data "$work"
expect_err 'has no train-images-idx3-ubyte and train-labels-idx1-ubyte'
mkdir "$work/path"
printf '#!/bin/sh\necho gcc -llam\n' >"$work/path/mpicc.mpich"
cp "$work/path/mpicc.mpich" "$work/path/mpiexec.mpich"
chmod +x "$work/path"/*
PATH="$work/path:$PATH" expect 2 "$bundle" "$work/new" --mpi mpich
expect_err 'mpi mpich: mpicc.mpich compiles for another MPI, or is missing'
[ ! -e "$work/new" ] || fail "a refused bundle was begun"

# A folder may be named with a slash at its end. Mpi tests need nothing of the source folder, but for scripts.
expect 0 cmake "-DBUILD=$build/" -DLABEL=mpi "-DOUT=$work/list" -P "$source/cmake/gpu_tests.cmake"
expect_err 'programs.perf is left out: its command names a path outside'
cp "$work/list" "$work/out"
expect_out '^mpi.allreduce.5 5 tests/mpi_allreduce$'
expect_out '^mpi.settings_wrong.3 3 tests/mpi_settings wrong$'
! grep -q '^unit' "$work/list" || fail "tests of another label"
expect 1 cmake "-DBUILD=$work/none" -DLABEL=unit "-DOUT=$work/list" -P "$source/cmake/gpu_tests.cmake"
