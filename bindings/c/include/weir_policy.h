/*
 * weir_policy.h: a drive's decisions in a shared library of your own: what its flash does, and what commands cost in arbitration.
 *
 * Build a shared library that has the function weir_policy, and name it in the drive's configuration:
 *
 *     [[device]]
 *     cost_library = "/usr/local/lib/my_cost.so"          # cost()
 *     cost_arguments = "whatever create() reads"
 *     [device.flash]
 *     policy_library = "/usr/local/lib/my_policy.so"      # victim(), take(), rotate(), stream(), moved()
 *     policy_arguments = "whatever create() reads"
 *
 * Both may name one library; each has a state of its own then. `weir sim`, `weir plan` and a live node then ask it. A function that is NULL leaves its decision with the drive. What a
 * function answers is checked: a policy can make a drive slow, not wrong. It runs in the process that asks, so it must not
 * block, start processes or write to memory that is not its own.
 *
 * Calls for one state come one at a time, from any thread; calls for states of different drives may come at the same time.
 * A live node asks anew after an upgrade or a crash: create() is called again, and what a state held is gone.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef WEIR_POLICY_H
#define WEIR_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header: a library of another version is refused. */
#define WEIR_POLICY_VERSION 2

/* Answers that are no place: the drive decides this one by itself ... */
#define WEIR_POLICY_NONE (-1)
/* ... or all from now on: the function has failed, which is logged, and a simulation ends with an error. */
#define WEIR_POLICY_FAILED (-2)

/* The drive that a state is for; of a drive without flash all are 0. */
struct weir_policy_drive {
    uint64_t units;       /* units of 4 KiB that the host is offered */
    uint64_t seed;        /* the drive's `seed` */
    uint32_t planes;      /* planes of all dies */
    uint32_t blocks;      /* blocks of a plane */
    uint32_t block_units; /* units of 4 KiB of a block */
    uint32_t streams;     /* `streams`: write points that are kept apart */
};

/* The blocks of a plane: the same index in each of the arrays is the same block. Valid during the call. */
struct weir_policy_plane {
    const uint16_t *valid;      /* valid units; more than block_units where the block must not be chosen */
    const uint32_t *erases;     /* how often it was erased */
    const uint64_t *written_at; /* when it was programmed last, in programs of the whole drive */
    size_t blocks;              /* entries of each array */
    uint64_t now;               /* programs of the whole drive so far */
    uint32_t block_units;       /* units of a block */
    uint32_t reserved;
};

/* What a command does, as NVMe has it. */
#define WEIR_POLICY_FLUSH 0x00
#define WEIR_POLICY_WRITE 0x01
#define WEIR_POLICY_READ 0x02
#define WEIR_POLICY_COMPARE 0x05
#define WEIR_POLICY_WRITE_ZEROES 0x08
#define WEIR_POLICY_DEALLOCATE 0x09
#define WEIR_POLICY_VERIFY 0x0c
#define WEIR_POLICY_COPY 0x19

/* Bytes that a command is charged at the least, and at the most. */
#define WEIR_POLICY_COST_MIN 4096
#define WEIR_POLICY_COST_MAX (1 << 30)

/* A command that its tenant is charged for. */
struct weir_policy_command {
    uint64_t offset;   /* where it begins, in bytes of the drive */
    uint32_t bytes;    /* how many; 0 of a flush and of a deallocation */
    uint32_t own;      /* what the drive's own `cost` charges */
    uint16_t tenant;   /* the tenant's place: those of the configuration in their order, from 0, then those that were added */
    uint8_t opcode;    /* WEIR_POLICY_READ, ... */
    uint8_t fua;       /* 1: durable when complete (FUA) */
    uint32_t reserved;
};

/* Random numbers from the drive's seed, so that a run can be repeated: random->next(random->state) has 64 bits. */
struct weir_policy_random {
    uint64_t (*next)(void *state);
    void *state;
};

/* What weir_policy() answers with; it stays as it is. */
struct weir_policy {
    uint32_t version; /* WEIR_POLICY_VERSION */
    uint32_t size;    /* sizeof(struct weir_policy) */
    const char *name; /* for messages; may be NULL */

    /*
     * A state for a drive; `arguments` is the configuration's policy_arguments, "" where there is none. NULL refuses: the
     * reason, ended by a zero, goes to `error`, which has room for `size` bytes. Both NULL: the functions get NULL as state.
     */
    void *(*create)(const char *arguments, const struct weir_policy_drive *drive, char *error, size_t size);
    void (*destroy)(void *state);

    /* Which block of the plane is collected next: its index, or WEIR_POLICY_NONE. */
    int64_t (*victim)(void *state, const struct weir_policy_plane *plane, const struct weir_policy_random *random);

    /*
     * Which free block is written next: its place in `free`, which names `count` blocks of the drive, the one that was freed
     * last at the end. erases[free[i]] is how often it was erased. `cold`: for data that moves to level wear.
     */
    int64_t (*take)(void *state, const uint32_t *free, size_t count, const uint32_t *erases, int cold);

    /*
     * Asked after an erase: a block whose contents move so that it can wear as well, or WEIR_POLICY_NONE. They go to the free
     * block that take() has for cold data, which was erased `target` times. Only beside take(); NULL: the drive's own.
     */
    int64_t (*rotate)(void *state, const struct weir_policy_plane *plane, uint32_t target);

    /* The stream, below `streams`, of a write of a unit; `hint` is what the host said, 0 when nothing. */
    int64_t (*stream)(void *state, uint32_t unit, uint8_t hint, uint8_t streams);

    /* The stream of a unit of stream `from` that collection moves. Only beside stream(), with `separation` other than "none". */
    int64_t (*moved)(void *state, uint32_t unit, uint8_t from, uint8_t streams);

    /*
     * What `drr` charges a command's tenant, in bytes, as `quanta` count them; asked once for each command, when it is fetched.
     * Below WEIR_POLICY_COST_MIN that is charged; WEIR_POLICY_NONE and what is over WEIR_POLICY_COST_MAX leave it to the
     * drive's own `cost`.
     */
    int64_t (*cost)(void *state, const struct weir_policy_command *command);
};

/* The library's one function. */
const struct weir_policy *weir_policy(void);

#ifdef __cplusplus
}
#endif

#endif
