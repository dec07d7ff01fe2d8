# What the build needs and what it may use. AUTO uses a thing where it is found, ON requires it, OFF
# leaves it out; the HAVE_ variables say what came of it, and Summary.cmake prints them.
foreach(part IN ITEMS MPI CUDA NCCL DROPIN TRAIN ONEDNN CUDNN)
    set(ALNICO_${part} AUTO CACHE STRING "AUTO, ON or OFF")
    set_property(CACHE ALNICO_${part} PROPERTY STRINGS AUTO ON OFF)
    if(NOT ALNICO_${part} MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "ALNICO_${part} is '${ALNICO_${part}}', expected AUTO, ON or OFF")
    endif()
endforeach()

find_package(Threads REQUIRED)
# Of a bare name, such as mpicc.mpich, FindMPI makes a path when a folder is configured first, not the second time. The
# installed package needs it.
if(MPI_C_COMPILER AND NOT IS_ABSOLUTE "${MPI_C_COMPILER}")
    find_program(mpi_c_compiler "${MPI_C_COMPILER}" NO_CACHE)
    if(mpi_c_compiler)
        set(MPI_C_COMPILER "${mpi_c_compiler}" CACHE FILEPATH "The MPI compiler" FORCE)
    endif()
endif()
set(HAVE_MPI FALSE)
if(ALNICO_MPI STREQUAL ON)
    find_package(MPI REQUIRED COMPONENTS C)
elseif(ALNICO_MPI STREQUAL AUTO)
    find_package(MPI COMPONENTS C)
endif()
if(MPI_C_FOUND AND NOT ALNICO_MPI STREQUAL OFF)
    set(HAVE_MPI TRUE)
endif()
set(HAVE_MPI ${HAVE_MPI} CACHE INTERNAL "MPI is used")
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)

# What the studies (docs/studies.md) compare with, where it is found.
pkg_check_modules(OPENBLAS QUIET IMPORTED_TARGET openblas)
set(HAVE_OPENBLAS ${OPENBLAS_FOUND})
pkg_check_modules(FFTW QUIET IMPORTED_TARGET fftw3f)
set(HAVE_FFTW ${FFTW_FOUND})
