# NCCL: nccl.h and libnccl, looked for in NCCL_ROOT (a CMake or environment variable), then in the CUDA toolkit, then
# in the system's folders. Gives NCCL_FOUND, NCCL_VERSION, NCCL_LIBRARY, NCCL::headers, and NCCL::NCCL for what compares with
# it: Alnico itself loads the library when it is first wanted.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NCCL_INCLUDE_DIR)
    # The library beside the header, if there is one.
    get_filename_component(nccl_prefix ${NCCL_INCLUDE_DIR} DIRECTORY)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_lines REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]*([0-9]+)[^;]*" "\\1" NCCL_VERSION "${nccl_lines}")
    string(REPLACE ";" "." NCCL_VERSION "${NCCL_VERSION}")
endif()
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${nccl_prefix} ${CUDAToolkit_LIBRARY_DIR}
    PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
    add_library(NCCL::headers INTERFACE IMPORTED)
    set_target_properties(NCCL::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
    add_library(NCCL::NCCL UNKNOWN IMPORTED)
    set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
