/* The table of backends. */
#include "comm/backend.h"

const struct backend_ops *const backend_all[] = {&backend_host, &backend_peer, NULL};
