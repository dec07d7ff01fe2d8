/* A tool for NVTX, which a program loads by NVTX_INJECTION64_PATH: appends a line for each span to
 * the file of NVTX_SPANS, as deep as it is indented. */
#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <stdlib.h>

static FILE *spans;
static int depth;

static int push(const char *name)
{
    fprintf(spans, "%*s%s\n", 2 * depth, "", name);
    return depth++;
}

static int pop(void)
{
    fflush(spans);
    return --depth;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    const char *path = getenv("NVTX_SPANS");
    NvtxFunctionTable table;
    unsigned int size = 0;
    spans = path ? fopen(path, "w") : NULL;
    if (!spans || !callbacks ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
        size <= NVTX_CBID_CORE_RangePop)
        return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
