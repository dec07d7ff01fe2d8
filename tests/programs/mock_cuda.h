/* Included before everything else: what alnico-perf uses of CUDA and NCCL gets other names, whose
 * functions stand in mock_cuda.c. The libraries' own headers then declare them. */
#ifndef ALNICO_TESTS_PROGRAMS_MOCK_CUDA_H
#define ALNICO_TESTS_PROGRAMS_MOCK_CUDA_H

#define cudaMalloc mock_cudaMalloc
#define cudaFree mock_cudaFree
#define cudaMallocHost mock_cudaMallocHost
#define cudaFreeHost mock_cudaFreeHost
#define cudaMemset mock_cudaMemset
#define cudaMemsetAsync mock_cudaMemsetAsync
#define cudaMemcpy mock_cudaMemcpy
#define cudaMemcpyAsync mock_cudaMemcpyAsync
#define cudaStreamCreateWithFlags mock_cudaStreamCreateWithFlags
#define cudaStreamDestroy mock_cudaStreamDestroy
#define cudaStreamSynchronize mock_cudaStreamSynchronize
#define cudaDeviceSynchronize mock_cudaDeviceSynchronize
#define cudaStreamWaitEvent mock_cudaStreamWaitEvent
#define cudaStreamBeginCapture mock_cudaStreamBeginCapture
#define cudaStreamEndCapture mock_cudaStreamEndCapture
#define cudaEventCreate mock_cudaEventCreate
#define cudaEventCreateWithFlags mock_cudaEventCreateWithFlags
#define cudaEventDestroy mock_cudaEventDestroy
#define cudaEventRecord mock_cudaEventRecord
#define cudaEventElapsedTime mock_cudaEventElapsedTime
#define cudaGraphInstantiateWithFlags mock_cudaGraphInstantiateWithFlags
#define cudaGraphUpload mock_cudaGraphUpload
#define cudaGraphLaunch mock_cudaGraphLaunch
#define cudaGraphDestroy mock_cudaGraphDestroy
#define cudaGraphExecDestroy mock_cudaGraphExecDestroy
#define cudaGetDeviceCount mock_cudaGetDeviceCount
#define cudaSetDevice mock_cudaSetDevice
#define cudaGetDeviceProperties mock_cudaGetDeviceProperties
#define cudaDriverGetVersion mock_cudaDriverGetVersion
#define cudaGetLastError mock_cudaGetLastError
#define ncclGetUniqueId mock_ncclGetUniqueId
#define ncclCommInitRank mock_ncclCommInitRank
#define ncclCommDestroy mock_ncclCommDestroy
#define ncclMemAlloc mock_ncclMemAlloc
#define ncclMemFree mock_ncclMemFree
#define ncclCommWindowRegister mock_ncclCommWindowRegister
#define ncclCommWindowDeregister mock_ncclCommWindowDeregister
#define ncclAllReduce mock_ncclAllReduce
#define ncclReduce mock_ncclReduce
#define ncclBroadcast mock_ncclBroadcast
#define ncclAllGather mock_ncclAllGather
#define ncclReduceScatter mock_ncclReduceScatter
#define ncclGather mock_ncclGather
#define ncclScatter mock_ncclScatter
#define ncclAlltoAll mock_ncclAlltoAll
#define ncclGroupStart mock_ncclGroupStart
#define ncclGroupEnd mock_ncclGroupEnd
#define ncclSend mock_ncclSend
#define ncclRecv mock_ncclRecv

#include <cuda_runtime_api.h>
#include <nccl.h>

#endif
