/* Dense layers as products of OpenBLAS, where that is there and faster than oneDNN. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* With fewer rows, smaller weights, or vectors of 16 numbers oneDNN is as fast or faster
 * (benchmarks/studies/skinny.c). */
enum { FORWARD_ROWS = 48, BACKWARD_ROWS = 24, WEIGHTS = 1 << 16 };

/* CBLAS, as the library has it that counts in int. */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
typedef void sgemm_function(int order, int a_order, int b_order, int rows, int columns, int depth,
                            float alpha, const float *a, int a_row, const float *b, int b_row,
                            float beta, float *c, int c_row);
static sgemm_function *sgemm;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Stays loaded for the process's life. One with threads of its own would take the cores of OpenMP's. */
static void find_openblas(void)
{
    enum { OPENMP = 2 };
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    int (*parallel)(void) = NULL;
    if (library)
        *(void **)&parallel = dlsym(library, "openblas_get_parallel");
    if (parallel && parallel() == OPENMP)
        *(void **)&sgemm = dlsym(library, "cblas_sgemm");
}

/* rows x inputs times the weights, outputs x inputs. */
struct dense {
    size_t rows, inputs, outputs;
    const float *x, *weights, *bias, *dy;
    float *y, *dx, *dweights, *dbias;
};

static struct dense dense_of(const struct compiled *self, const struct step *step)
{
    const struct node *node = &self->setup.network->nodes[step->first];
    const struct arenas *arenas = self->setup.arenas;
    float *gradients = arenas->gradients;
    const bool biased = node->bias.count > 0;
    return (struct dense){
        .rows = plan_images(self->setup.plan, step->out),
        .inputs = node->weight.count / node->operation.filters,
        .outputs = node->operation.filters,
        .x = setup_value(&self->setup, step->in[0]),
        .weights = arenas->parameters + node->weight.offset,
        .bias = biased ? arenas->parameters + node->bias.offset : NULL,
        .dy = setup_diff(&self->setup, step->out),
        .y = setup_value(&self->setup, step->out),
        .dx = step->in[0] ? setup_diff(&self->setup, step->in[0]) : NULL,
        .dweights = gradients + node->weight.offset,
        .dbias = biased ? gradients + node->bias.offset : NULL,
    };
}

/* c = a b, or c += a b: rows x depth times depth x columns, each transposed in memory if `order` is
 * TRANSPOSED; all rows in memory follow each other. */
struct factor {
    int order;
    const float *at;
};

static void multiply(size_t rows, size_t columns, size_t depth, struct factor a, struct factor b,
                     bool add, float *c)
{
    const size_t a_row = a.order == PLAIN ? depth : rows,
                 b_row = b.order == PLAIN ? columns : depth;
    sgemm(ROW_MAJOR, a.order, b.order, (int)rows, (int)columns, (int)depth, 1, a.at, (int)a_row,
          b.at, (int)b_row, add, c, (int)columns);
}

static void pass_forward(const struct compiled *self, const struct action *action)
{
    const struct dense d = dense_of(self, action->step);
    for (size_t row = 0; d.bias && row < d.rows; row++)
        memcpy(d.y + row * d.outputs, d.bias, d.outputs * sizeof *d.y);
    multiply(d.rows, d.outputs, d.inputs, (struct factor){PLAIN, d.x},
             (struct factor){TRANSPOSED, d.weights}, d.bias != NULL, d.y);
}

static void pass_parameters(const struct compiled *self, const struct action *action)
{
    const struct dense d = dense_of(self, action->step);
    multiply(d.outputs, d.inputs, d.rows, (struct factor){TRANSPOSED, d.dy},
             (struct factor){PLAIN, d.x}, false, d.dweights);
    if (!d.dbias)
        return;
    memcpy(d.dbias, d.dy, d.outputs * sizeof *d.dbias);
    for (size_t row = 1; row < d.rows; row++)
        elementwise_accumulate(d.dbias, d.dy + row * d.outputs, NULL, d.outputs);
}

static void pass_inputs(const struct compiled *self, const struct action *action)
{
    const struct dense d = dense_of(self, action->step);
    multiply(d.rows, d.inputs, d.outputs, (struct factor){PLAIN, d.dy},
             (struct factor){PLAIN, d.weights}, action->add, d.dx);
}

static int pays(const struct compiled *self, const struct step *step)
{
    const struct node *node = &self->setup.network->nodes[step->first];
    const size_t rows = plan_images(self->setup.plan, step->out);
    pthread_once(&once, find_openblas);
    if (!sgemm || onednn_wide() || node->weight.count < WEIGHTS || rows < BACKWARD_ROWS)
        return DENSE_NOTHING;
    return rows < FORWARD_ROWS ? DENSE_GRADIENTS : DENSE_ALL;
}

alnico_status_t dense_products(const struct compiled *self, const struct step *step,
                               struct sequences *sequences, int *made)
{
    struct action action = {.own = pass_forward, .step = step, .foreign = true};
    *made = pays(self, step);
    if (*made == DENSE_ALL)
        TRY(sequence_append(&sequences->forward, &action));
    if (*made == DENSE_NOTHING)
        return ALNICO_SUCCESS;
    action.own = pass_parameters;
    TRY(sequence_append(&sequences->parameters, &action));
    action.own = pass_inputs;
    action.add = step->accumulate[0];
    return self->diffs[step->in[0]] ? sequence_append(&sequences->backward, &action)
                                    : ALNICO_SUCCESS;
}
