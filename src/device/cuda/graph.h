/* Graphs of CUDA: see the slots of device.h. */
#ifndef ALNICO_DEVICE_CUDA_GRAPH_H
#define ALNICO_DEVICE_CUDA_GRAPH_H

#include "device/device.h"

alnico_status_t graph_cuda_begin(void *stream);
alnico_status_t graph_cuda_end(void *stream, struct device_graph **out);
alnico_status_t graph_cuda_launch(struct device_graph *graph, void *stream);
void graph_cuda_destroy(struct device_graph *graph);

#endif
