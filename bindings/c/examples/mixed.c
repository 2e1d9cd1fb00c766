/*
 * mixed URL [seconds] [depth] [bytes]: random reads and writes against a target, and what came of them.
 *
 *     cc -O2 mixed.c $(pkg-config --cflags --libs weir) -o mixed
 *     ./mixed local:ram
 *     ionice -c3 ./mixed 'nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.weir:n1:ssd0?ns=1' 5 32 4096
 *
 * Shows a program's way through the library: open, create a queue, allocate its buffers, keep `depth` requests in flight, each
 * submitted again from its callback, poll, look at the errors. It writes to the drive: what was there is lost.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weir.h>

struct load;

/* One request after another in the same buffer. */
struct lane {
    struct load *load;
    void *buffer;
    uint64_t since;
    int write;
};

struct load {
    weir_queue_t *queue;
    uint64_t blocks; /* places of `bytes` on the drive */
    uint32_t bytes;
    uint64_t random;
    int stopping;
    uint32_t in_flight;
    uint64_t done[2]; /* reads, writes */
    uint64_t failed;
    uint64_t sum_ns, max_ns;
    char failure[128];
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t next_random(struct load *load)
{
    load->random ^= load->random << 13;
    load->random ^= load->random >> 7;
    load->random ^= load->random << 17;
    return load->random;
}

static void ended(void *user, int result, uint16_t status);

static int start(struct lane *lane)
{
    struct load *load = lane->load;
    uint64_t offset = next_random(load) % load->blocks * load->bytes;
    lane->write = next_random(load) % 10 < 3;
    lane->since = now_ns();
    int result = lane->write ? weir_write(load->queue, lane->buffer, offset, load->bytes, ended, lane)
                             : weir_read(load->queue, lane->buffer, offset, load->bytes, ended, lane);
    if (result == WEIR_OK)
        load->in_flight++;
    return result;
}

static void ended(void *user, int result, uint16_t status)
{
    struct lane *lane = user;
    struct load *load = lane->load;
    uint64_t took = now_ns() - lane->since;
    load->in_flight--;
    if (result == WEIR_OK) {
        load->done[lane->write]++;
        load->sum_ns += took;
        if (took > load->max_ns)
            load->max_ns = took;
    } else {
        load->failed++;
        if (result == WEIR_EIO)
            weir_status_text(status, load->failure, sizeof load->failure);
        else
            snprintf(load->failure, sizeof load->failure, "%s", weir_strerror(result));
    }
    if (!load->stopping && start(lane) != WEIR_OK)
        load->stopping = 1;
}

static int run(weir_queue_t *queue, const weir_info_t *drive, double seconds, uint32_t bytes)
{
    weir_queue_info_t info = weir_queue_info_init();
    weir_queue_info(queue, &info);
    struct load load = {.queue = queue, .bytes = bytes, .blocks = drive->capacity / bytes, .random = now_ns() | 1};
    if (bytes == 0 || bytes % drive->block_size != 0 || bytes > info.max_io || load.blocks == 0) {
        fprintf(stderr, "mixed: %" PRIu32 " bytes are no request for blocks of %" PRIu32 " bytes, at most %" PRIu32 "\n", bytes,
                drive->block_size, info.max_io);
        return 1;
    }
    struct lane *lanes = calloc(info.depth, sizeof *lanes);
    uint64_t begin = now_ns(), end = begin + (uint64_t)(seconds * 1e9);
    for (uint32_t i = 0; lanes && i < info.depth; i++) {
        lanes[i] = (struct lane){.load = &load, .buffer = weir_buffer_alloc(queue)};
        if (!lanes[i].buffer || start(&lanes[i]) != WEIR_OK)
            break;
    }
    int polled = 0;
    while (load.in_flight > 0 && polled >= 0) {
        polled = weir_poll(queue, NULL, UINT32_MAX);
        if (now_ns() >= end)
            load.stopping = 1;
    }
    double took = (double)(now_ns() - begin) / 1e9;
    uint64_t done = load.done[0] + load.done[1];
    printf("%" PRIu64 " reads, %" PRIu64 " writes of %" PRIu32 " bytes at depth %" PRIu32 " in %.2f s: %.0f IOPS, %.1f MB/s\n",
           load.done[0], load.done[1], bytes, info.depth, took, (double)done / took, (double)done * bytes / took / 1e6);
    printf("latency: mean %.1f us, max %.1f us; failed: %" PRIu64 "%s%s\n", done ? (double)load.sum_ns / (double)done / 1e3 : 0.0,
           (double)load.max_ns / 1e3, load.failed, load.failed ? ": " : "", load.failure);
    free(lanes);
    weir_error_t error;
    if (weir_queue_error(queue, &error) != WEIR_OK)
        fprintf(stderr, "mixed: %s\n", error.message);
    return load.failed == 0 && done > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 5) {
        fprintf(stderr, "usage: mixed URL [seconds] [depth] [bytes]\n");
        return 2;
    }
    weir_error_t error;
    weir_opts_t opts = weir_opts_init();
    opts.depth = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : 32;
    weir_t *drive = weir_open(argv[1], &opts, &error);
    if (!drive) {
        fprintf(stderr, "mixed: %s\n", error.message);
        return 1;
    }
    weir_info_t info = weir_info_init();
    weir_info(drive, &info);
    printf("%s: %s, %" PRIu64 " bytes in blocks of %" PRIu32 "\n", argv[1], info.transport, info.capacity, info.block_size);
    int status = 1;
    weir_queue_t *queue = weir_queue_create(drive, NULL, &error);
    if (queue)
        status = run(queue, &info, argc > 2 ? atof(argv[2]) : 1.0, argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 0) : 4096);
    else
        fprintf(stderr, "mixed: %s\n", error.message);
    weir_queue_destroy(queue);
    weir_close(drive);
    return status;
}
