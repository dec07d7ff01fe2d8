# What `cmake --install` puts where, and how other builds find it: find_package(alnico) gives
# alnico::alnico (shared) and alnico::static, with COMPONENTS mpi also alnico::mpi and alnico::mpi_static; pkg-config knows
# `alnico` and `alnico-mpi`. All of it may be moved.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/alnico)

install(TARGETS alnico_shared alnico_static EXPORT alnicoTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT alnicoTargets NAMESPACE alnico:: DESTINATION ${package_dir})
install(FILES include/alnico/alnico.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/alnico)
# The documents refer to each other, and to the examples, as they do here.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
# By pip from here, or from where it is installed.
install(DIRECTORY integrations/python integrations/pytorch DESTINATION ${CMAKE_INSTALL_DOCDIR}/integrations
    PATTERN __pycache__ EXCLUDE PATTERN build EXCLUDE PATTERN *.egg-info EXCLUDE)

# The part that knows MPI; the MPI of this build, as those who use the package have to find it.
if(HAVE_MPI)
    install(TARGETS alnico_mpi_shared alnico_mpi_static EXPORT alnicoMpiTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT alnicoMpiTargets NAMESPACE alnico:: DESTINATION ${package_dir})
    install(FILES include/alnico/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/alnico)
    get_filename_component(mpi_folder "${MPI_C_COMPILER}" DIRECTORY)
    get_filename_component(mpi_cxx_compiler "${MPI_C_COMPILER}" NAME)
    string(REPLACE mpicc mpicxx mpi_cxx_compiler "${mpi_folder}/${mpi_cxx_compiler}")
    include(cmake/mpi_soname.cmake)
    alnico_mpi_soname(mpi_soname "${MPI_C_LIBRARIES}")
    configure_file(cmake/alnicoMpi.cmake.in alnicoMpi.cmake @ONLY)
    install(FILES cmake/mpi_soname.cmake ${PROJECT_BINARY_DIR}/alnicoMpi.cmake DESTINATION ${package_dir})
endif()

configure_package_config_file(cmake/alnicoConfig.cmake.in alnicoConfig.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(alnicoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/alnicoConfig.cmake
    ${PROJECT_BINARY_DIR}/alnicoConfigVersion.cmake DESTINATION ${package_dir})

# The path from the .pc file up to the prefix.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(part IN ITEMS INCLUDE LIB)
    string(TOLOWER pc_${part}dir variable)
    set(${variable} ${CMAKE_INSTALL_${part}DIR})
    if(NOT IS_ABSOLUTE "${${variable}}")
        string(PREPEND ${variable} "\${prefix}/")
    endif()
endforeach()
set(pc_libraries -lhwloc -lcjson)
if(HAVE_CUDA)
    list(APPEND pc_libraries ${CUDA_cudart_static_LIBRARY} -lstdc++ -lrt -ldl)
endif()
list(JOIN pc_libraries " " pc_libraries)
configure_file(cmake/alnico.pc.in alnico.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/alnico.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(HAVE_MPI)
    list(JOIN MPI_C_LIBRARIES " " pc_mpi_libraries)
    configure_file(cmake/alnico-mpi.pc.in alnico-mpi.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/alnico-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
