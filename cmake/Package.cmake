# What `cmake --install` puts where, and how other builds find it: find_package(alnico) gives
# alnico::alnico (shared) and alnico::static, pkg-config knows `alnico`. All of it may be moved.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/alnico)

install(TARGETS alnico_shared alnico_static EXPORT alnicoTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT alnicoTargets NAMESPACE alnico:: DESTINATION ${package_dir})
install(DIRECTORY include/alnico DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md)

configure_package_config_file(cmake/alnicoConfig.cmake.in alnicoConfig.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(alnicoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/alnicoConfig.cmake
    ${PROJECT_BINARY_DIR}/alnicoConfigVersion.cmake DESTINATION ${package_dir})

# The path from the .pc file up to the prefix.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REPLACE ";" " " pc_mpi_libraries "${MPI_C_LIBRARIES}")
set(pc_gpu_libraries)
if(HAVE_CUDA)
    set(pc_gpu_libraries "${CUDA_cudart_static_LIBRARY} -lstdc++ -lrt -ldl")
endif()
if(HAVE_NCCL)
    string(APPEND pc_gpu_libraries " ${NCCL_LIBRARY}")
endif()
configure_file(cmake/alnico.pc.in alnico.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/alnico.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
