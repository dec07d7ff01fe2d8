/* A program that is linked with NCCL and finds it by its own path, as PyTorch does: prints whose NCCL it got, as linked and
 * as opened by name. */
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>

static const char *whose(void *library)
{
    return dlsym(library, "alnico_nccl_dropin") ? "Alnico's" : "another";
}

int main(void)
{
    Dl_info linked;
    int version = -1;
    void *opened = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    ncclResult_t result = ncclGetVersion(&version);
    if (!opened || !dladdr(dlsym(RTLD_DEFAULT, "ncclGetVersion"), &linked))
        return 1;
    void *file = dlopen(linked.dli_fname, RTLD_NOW | RTLD_LOCAL);
    printf("linked %s, opened %s, version %d, result %d\n", whose(file), whose(opened), version,
           (int)result);
    return 0;
}
