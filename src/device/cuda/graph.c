/* See graph_cuda.h. Nodes keep the priorities of the streams on which they were captured. */
#include "device/cuda/graph.h"

#include "device/cuda/driver.h"

alnico_status_t graph_cuda_begin(void *stream)
{
    return cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                       "cudaStreamBeginCapture");
}

alnico_status_t graph_cuda_end(void *stream, struct device_graph **out)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (!out) { /* what was captured is not wanted, not even why it failed */
        cudaGetLastError();
        if (graph)
            cudaGraphDestroy(graph);
        return ALNICO_SUCCESS;
    }
    *out = NULL;
    if (error != cudaSuccess)
        return cuda_status(error, "cudaStreamEndCapture");
    error = cudaGraphInstantiate(&ready, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    if (error == cudaSuccess)
        error = cudaGraphUpload(ready, stream);
    if (error != cudaSuccess && ready)
        cudaGraphExecDestroy(ready);
    if (error == cudaSuccess)
        *out = (struct device_graph *)ready;
    return cuda_status(error, "instantiating a graph");
}

alnico_status_t graph_cuda_launch(struct device_graph *graph, void *stream)
{
    return cuda_status(cudaGraphLaunch((cudaGraphExec_t)graph, stream), "cudaGraphLaunch");
}

void graph_cuda_destroy(struct device_graph *graph)
{
    if (graph)
        cudaGraphExecDestroy((cudaGraphExec_t)graph);
}
