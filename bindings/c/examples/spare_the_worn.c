/*
 * A policy library: the block with the fewest valid units is collected, as by `greedy`, but each erase that it has more than the
 * least worn block of the plane counts like `weight` valid units (policy_arguments, a number; 1 if there is none).
 *
 *     cc -std=c11 -O2 -Wall -Wextra -fPIC -shared -o spare_the_worn.so spare_the_worn.c -I ../include
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir_policy.h>

struct state {
    double weight;
};

static void *create(const char *arguments, const struct weir_policy_drive *drive, char *error, size_t size)
{
    char *end;
    struct state *state = malloc(sizeof *state);

    (void)drive;
    if (state == NULL) {
        snprintf(error, size, "no memory");
        return NULL;
    }
    state->weight = *arguments == '\0' ? 1.0 : strtod(arguments, &end);
    if (*arguments != '\0' && (*end != '\0' || !(state->weight >= 0))) {
        snprintf(error, size, "policy_arguments is the weight of an erase, a number of 0 or more, not '%.64s'", arguments);
        free(state);
        return NULL;
    }
    return state;
}

static int64_t victim(void *state, const struct weir_policy_plane *plane, const struct weir_policy_random *random)
{
    const struct state *mine = state;
    uint32_t least = UINT32_MAX;
    int64_t best = WEIR_POLICY_NONE;
    double best_cost = 0;

    (void)random;
    for (size_t block = 0; block < plane->blocks; block++)
        least = plane->erases[block] < least ? plane->erases[block] : least;
    for (size_t block = 0; block < plane->blocks; block++) {
        double cost = plane->valid[block] + mine->weight * (plane->erases[block] - least);

        if (plane->valid[block] <= plane->block_units && (best == WEIR_POLICY_NONE || cost < best_cost)) {
            best = (int64_t)block;
            best_cost = cost;
        }
    }
    return best;
}

static const struct weir_policy policy = {
    .version = WEIR_POLICY_VERSION,
    .size = sizeof policy,
    .name = "spare the worn",
    .create = create,
    .destroy = free,
    .victim = victim,
};

const struct weir_policy *weir_policy(void)
{
    return &policy;
}
