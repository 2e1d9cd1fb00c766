/*
 * A policy library: a write is charged `factor` times its bytes (cost_arguments, a number from 1 to 64; 4 if there is none), all
 * else what the drive's own cost charges. So a tenant that writes gets as many bytes less as its writes are dearer.
 *
 *     cc -std=c11 -O2 -Wall -Wextra -fPIC -shared -o dear_writes.so dear_writes.c -I ../include
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir_policy.h>

struct state {
    double factor;
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
    state->factor = *arguments == '\0' ? 4.0 : strtod(arguments, &end);
    if (*arguments != '\0' && (*end != '\0' || !(state->factor >= 1 && state->factor <= 64))) {
        snprintf(error, size, "cost_arguments is how dear writes are, a number from 1 to 64, not '%.64s'", arguments);
        free(state);
        return NULL;
    }
    return state;
}

static int64_t cost(void *state, const struct weir_policy_command *command)
{
    const struct state *mine = state;

    return command->opcode == WEIR_POLICY_WRITE ? (int64_t)(mine->factor * command->own) : WEIR_POLICY_NONE;
}

static const struct weir_policy policy = {
    .version = WEIR_POLICY_VERSION,
    .size = sizeof policy,
    .name = "dear writes",
    .create = create,
    .destroy = free,
    .cost = cost,
};

const struct weir_policy *weir_policy(void)
{
    return &policy;
}
