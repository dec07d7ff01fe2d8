# What was found and what will be built, printed at the end of configuring.
message(STATUS "Alnico ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
message(STATUS "  MPI      ${MPI_C_COMPILER} (standard ${MPI_C_VERSION}), run by ${MPIEXEC_EXECUTABLE}")
message(STATUS "  hwloc    ${HWLOC_VERSION}")
message(STATUS "  CUDA     ${HAVE_CUDA} (ALNICO_CUDA=${ALNICO_CUDA}; ${cuda_reason})")
message(STATUS "  NCCL     ${HAVE_NCCL} (ALNICO_NCCL=${ALNICO_NCCL}; ${nccl_reason})")
message(STATUS "  trainer  ${HAVE_TRAIN} (ALNICO_TRAIN=${ALNICO_TRAIN}; needs oneDNN 2.x, found ${DNNL_VERSION})")
message(STATUS "  tests    ${BUILD_TESTING}")
