# oneDNN as Debian packages it: dnnl.h and libdnnl. Gives DNNL_FOUND, DNNL_VERSION and DNNL::dnnl. Ask
# for 2...<3: the C interface of 3.x is another one.
find_path(DNNL_INCLUDE_DIR dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE_DIR AND EXISTS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_lines
        REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
    string(REGEX REPLACE "[^0-9;]*([0-9]+)" "\\1" DNNL_VERSION "${dnnl_lines}")
    string(REPLACE ";" "." DNNL_VERSION "${DNNL_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DNNL REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR
    VERSION_VAR DNNL_VERSION HANDLE_VERSION_RANGE)
if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()
