# What the build needs and what it may use. AUTO uses a thing where it is found, ON requires it, OFF
# leaves it out; the HAVE_ variables say what came of it, and Summary.cmake prints them.
foreach(part IN ITEMS CUDA NCCL TRAIN)
    set(ALNICO_${part} AUTO CACHE STRING "AUTO, ON or OFF")
    set_property(CACHE ALNICO_${part} PROPERTY STRINGS AUTO ON OFF)
    if(NOT ALNICO_${part} MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "ALNICO_${part} is '${ALNICO_${part}}', expected AUTO, ON or OFF")
    endif()
endforeach()

find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)

# The trainer needs oneDNN (2.x, C API) and zlib.
set(HAVE_TRAIN FALSE)
if(NOT ALNICO_TRAIN STREQUAL OFF)
    find_package(ZLIB QUIET)
    find_package(DNNL 2...<3 QUIET)
    if(ZLIB_FOUND AND DNNL_FOUND)
        set(HAVE_TRAIN TRUE)
    elseif(ALNICO_TRAIN STREQUAL ON)
        message(FATAL_ERROR "ALNICO_TRAIN=ON needs oneDNN 2.x (libdnnl-dev; found: ${DNNL_VERSION}) "
            "and zlib (zlib1g-dev; found: ${ZLIB_VERSION_STRING})")
    endif()
endif()
