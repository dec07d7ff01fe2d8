#!/bin/bash
# What configuring says of MPI and of the trainer: the true reason why a part is left out, or cannot be had.
#
# Usage: configure.sh SOURCE MPICC
. "$(dirname "$0")/common.sh"
source=$1 mpicc=$2

configure() {
    local status=$1
    shift
    expect "$status" cmake -S "$source" -B "$work/build" -DMPI_C_COMPILER="$mpicc" -DBUILD_TESTING=OFF \
        -DALNICO_CUDA=OFF -DALNICO_TRAIN=AUTO -DALNICO_ONEDNN=AUTO -DALNICO_CUDNN=AUTO \
        -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=FALSE -DCMAKE_DISABLE_FIND_PACKAGE_DNNL=FALSE "$@"
}
# CMake breaks the lines of an error.
expect_error() {
    grep -qF -- "$1" <<<"$(tr -s '\n ' ' ' <"$work/err")" || fail "no error like: $1"
}

configure 0 -DALNICO_TRAIN=OFF
expect_out '  oneDNN   FALSE \(ALNICO_ONEDNN=AUTO; ALNICO_TRAIN=OFF\)$'
expect_out '  cuDNN    FALSE \(ALNICO_CUDNN=AUTO; ALNICO_TRAIN=OFF\)$'
configure 1 -DALNICO_TRAIN=OFF -DALNICO_ONEDNN=ON
expect_error 'ALNICO_ONEDNN=ON: ALNICO_TRAIN=OFF'
configure 1 -DALNICO_TRAIN=OFF -DALNICO_CUDNN=ON
expect_error 'ALNICO_CUDNN=ON: ALNICO_TRAIN=OFF'
configure 1 -DALNICO_CUDNN=ON
expect_error 'ALNICO_CUDNN=ON: no CUDA'
configure 0 -DALNICO_ONEDNN=OFF
expect_out '  oneDNN   FALSE \(ALNICO_ONEDNN=OFF; ALNICO_ONEDNN=OFF\)$'
configure 1 -DALNICO_TRAIN=ON -DCMAKE_DISABLE_FIND_PACKAGE_DNNL=TRUE
expect_error 'ALNICO_TRAIN=ON: oneDNN: needs oneDNN 2.x (libdnnl-dev)'
configure 0 -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=TRUE
expect_out '  oneDNN   FALSE \(ALNICO_ONEDNN=AUTO; needs zlib \(zlib1g-dev\)\)$'
configure 0 -DCMAKE_DISABLE_FIND_PACKAGE_JPEG=TRUE -DCMAKE_DISABLE_FIND_PACKAGE_PNG=TRUE
expect_out '  oneDNN   FALSE \(ALNICO_ONEDNN=AUTO; needs libpng \(libpng-dev\), libjpeg-turbo \(libjpeg-dev\)\)$'
configure 1 -DALNICO_TRAIN=ON -DALNICO_ONEDNN=OFF
expect_error 'ALNICO_TRAIN=ON: oneDNN: ALNICO_ONEDNN=OFF; cuDNN: no CUDA'

configure 0 -DALNICO_TRAIN=OFF -DALNICO_MPI=OFF
expect_out '  MPI      FALSE \(ALNICO_MPI=OFF\)$'
configure 0 -DALNICO_TRAIN=OFF -DALNICO_MPI=AUTO -DCMAKE_DISABLE_FIND_PACKAGE_MPI=TRUE
expect_out '  MPI      FALSE \(ALNICO_MPI=AUTO\)$'
configure 1 -DALNICO_TRAIN=OFF -DALNICO_MPI=ON
expect_error 'CMAKE_DISABLE_FIND_PACKAGE_MPI is enabled'
configure 0 -DALNICO_TRAIN=OFF -DALNICO_MPI=AUTO -DCMAKE_DISABLE_FIND_PACKAGE_MPI=FALSE
expect_out '  MPI      .* \(standard '

# The package names the MPI compiler by its path, however often and as what it was given.
for time in first second; do
    configure 0 -DALNICO_TRAIN=OFF -DMPI_C_COMPILER="${mpicc##*/}"
    grep -qF "set(alnico_mpi_compiler \"$(command -v "$mpicc")\")" "$work/build/alnicoMpi.cmake" ||
        fail "no path of the MPI compiler, configured the $time time"
done
