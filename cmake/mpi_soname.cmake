# alnico_mpi_soname(VARIABLE "LIBRARIES"): the MPI library among them with the version of its binary interface, such as
# libmpich.so.12; empty where it cannot be told.
function(alnico_mpi_soname variable libraries)
    set(${variable} "" PARENT_SCOPE)
    foreach(library IN LISTS libraries)
        get_filename_component(library "${library}" REALPATH)
        get_filename_component(library "${library}" NAME)
        if(NOT library MATCHES "cxx|fort" AND library MATCHES "^(lib.*mpi.*\\.so\\.[0-9]+)")
            set(${variable} ${CMAKE_MATCH_1} PARENT_SCOPE)
            return()
        endif()
    endforeach()
endfunction()
