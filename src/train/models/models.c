/* The table of models, and making a network from one. See models.h. */
#include "train/models/models.h"

#include "base/status.h"

#include <string.h>

const struct model *const models_all[] = {
    &model_resnet20,      &model_cnn,       &model_resnet18,  &model_resnet34,
    &model_resnet50,      &model_resnet101, &model_resnet152, &model_mnist,
    &model_alexnet_cifar, &model_alexnet,   &model_googlenet, &model_googlenet_aux,
    &model_mesh1k,        &model_mesh2k,    &model_neuron,    NULL};

bool model_find(const char *name, struct model *out)
{
    for (size_t i = 0; models_all[i]; i++)
        if (strcmp(models_all[i]->name, name) == 0) {
            *out = *models_all[i];
            return true;
        }
    return model_mesh(name, out);
}

alnico_status_t model_network(const struct model *model, size_t height, size_t width,
                              size_t channels, size_t classes, struct network **out)
{
    struct network *network;
    *out = NULL;
    TRY(network_create(height, width, channels, &network));
    alnico_status_t status = model->build(network, model->design, classes);
    if (status == ALNICO_SUCCESS)
        status = network_finish(network);
    if (status != ALNICO_SUCCESS)
        network_destroy(network);
    else
        *out = network;
    return status;
}
