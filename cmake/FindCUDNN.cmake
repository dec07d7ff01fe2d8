# The headers of cuDNN and cuBLAS, looked for in CUDNN_ROOT (a CMake or environment variable), then in the CUDA toolkit,
# then in the system's folders. The libraries are looked for when a program first wants them, so nothing is linked. Gives
# CUDNN_FOUND, CUDNN_VERSION and CUDNN::headers.
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES x86_64-linux-gnu
    aarch64-linux-gnu)
find_path(CUBLAS_INCLUDE_DIR cublas_api.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(CUDNN_INCLUDE_DIR)
    file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h cudnn_lines REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
    string(REGEX REPLACE "[^0-9;]*([0-9]+)[^;]*" "\\1" CUDNN_VERSION "${cudnn_lines}")
    string(REPLACE ";" "." CUDNN_VERSION "${CUDNN_VERSION}")
endif()
mark_as_advanced(CUDNN_INCLUDE_DIR CUBLAS_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_INCLUDE_DIR CUBLAS_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND NOT TARGET CUDNN::headers)
    add_library(CUDNN::headers INTERFACE IMPORTED)
    set_target_properties(CUDNN::headers PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR};${CUBLAS_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
endif()
