/* Gates between the GPU's streams and the host, by the tests of the CPU's. */
#include "tests/gpu/support/gpu.h"

#include <alnico/alnico.h>

static alnico_status_t gpu_stream_create(alnico_stream_t *out)
{
    return device_cuda.stream_create((void **)out);
}

static alnico_status_t gpu_stream_enqueue(alnico_stream_t stream, void (*function)(void *),
                                          void *argument)
{
    GPU(cudaLaunchHostFunc((cudaStream_t)(void *)stream, function, argument));
    return ALNICO_SUCCESS;
}

static alnico_status_t gpu_stream_synchronize(alnico_stream_t stream)
{
    return device_cuda.stream_synchronize(stream);
}

static void gpu_stream_destroy(alnico_stream_t stream)
{
    GPU(cudaStreamSynchronize((cudaStream_t)(void *)stream));
    device_cuda.stream_destroy(stream);
}

int cpu_main(void);
#define device_cpu device_cuda
#define alnico_stream_create gpu_stream_create
#define alnico_stream_enqueue gpu_stream_enqueue
#define alnico_stream_synchronize gpu_stream_synchronize
#define alnico_stream_destroy gpu_stream_destroy
#define main cpu_main
#include "tests/unit/progress/test_gate.c"
#undef main

/* The default stream opens later, not at once as the CPU's inline stream does. */
static void default_stream_opens(void **state)
{
    (void)state;
    struct gate gate = new_gate();
    for (int i = 0; i < 100; i++) {
        gate_close(&gate);
        assert_false(gate_is_open(&gate));
        assert_int_equal(gate_open_on(&gate, NULL), ALNICO_SUCCESS);
        EVENTUALLY(gate_is_open(&gate));
    }
    gate_finish(&gate);
}

int main(void)
{
    gpu_require(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_gate_is_open),
        cmocka_unit_test(default_stream_opens),
        cmocka_unit_test(stream_opens_in_its_order),
        cmocka_unit_test(gate_holds_its_stream_and_nobody_else),
        cmocka_unit_test(late_stream_passes_a_gate_armed_again),
        cmocka_unit_test(gates_work_thousands_of_times),
        cmocka_unit_test(largest_epoch_is_closed_and_opened),
        cmocka_unit_test(gates_work_past_their_largest_epoch),
    };
    alarm(WATCHDOG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
