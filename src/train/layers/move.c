/* Moves between ranks: no loops of their own, since other ranks have part in them (graph/split.h). */
#include "train/layers/layer.h"

static void move_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    cost_add(cost, work->in[0] + work->out + (backward ? work->added[0] : 0), 0);
}

const struct layer_ops layer_move = {.name = "move", .inputs = 1, .cost = move_cost};
