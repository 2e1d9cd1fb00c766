/*
 * A program that uses SPDK and knows nothing of the preload library: `client WAY [OPTION]...` attaches every controller in one way
 * and allocates queue pairs on each. Options: `nice=CLASS` sets this thread's I/O priority class before that, `wrr` asks for weighted
 * round robin itself, `priority=N` gives that priority, `short` passes options of 8 bytes, `wait` polls forever.
 */
#define _GNU_SOURCE
#include "../spdk_abi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern int spdk_nvme_ctrlr_free_io_qpair(struct spdk_nvme_qpair *);
#define DECLARE(result, name, parameters) extern result name parameters;
SPDK_FUNCTIONS(DECLARE)

static int own_mechanism, priority = -1, opts_short;
static int context = 7, asked, failed;

static void allocate(struct spdk_nvme_ctrlr *ctrlr)
{
    struct spdk_nvme_io_qpair_opts opts;
    struct spdk_nvme_qpair *qpair;
    if (priority < 0) {
        qpair = spdk_nvme_ctrlr_alloc_io_qpair(ctrlr, NULL, 0);
    } else {
        memset(&opts, 0xee, sizeof opts);
        spdk_nvme_ctrlr_get_default_io_qpair_opts(ctrlr, &opts, opts_short ? 8 : sizeof opts);
        opts.qprio = priority;
        opts.io_queue_size = 32;
        qpair = spdk_nvme_ctrlr_alloc_io_qpair(ctrlr, &opts, opts_short ? 8 : sizeof opts);
    }
    if (!qpair) {
        printf("no queue pair\n");
        exit(4);
    }
    spdk_nvme_ctrlr_free_io_qpair(qpair);
}

static bool on_probe(void *given, const struct spdk_nvme_transport_id *trid, struct spdk_nvme_ctrlr_opts *opts)
{
    (void)trid;
    if (given != &context)
        exit(5);
    asked++;
    opts->arb_mechanism = own_mechanism;
    opts->io_queue_size = 99;
    return true;
}

static void on_attach(void *given, const struct spdk_nvme_transport_id *trid, struct spdk_nvme_ctrlr *ctrlr,
                      const struct spdk_nvme_ctrlr_opts *opts)
{
    if (given != &context || opts->io_queue_size != 99) {
        printf("%s: wrong context or options\n", trid->traddr);
        exit(5);
    }
    allocate(ctrlr);
}

static void on_fail(void *given, const struct spdk_nvme_transport_id *trid, int error)
{
    if (given != &context)
        exit(5);
    printf("%s: the program is told of failure %d\n", trid->traddr, error);
    failed++;
}

static struct spdk_nvme_ctrlr_opts connect_opts;

static void on_connect(void *given, const struct spdk_nvme_transport_id *trid, struct spdk_nvme_ctrlr *ctrlr,
                       const struct spdk_nvme_ctrlr_opts *opts)
{
    (void)opts;
    /* SPDK hands the options' own address back: programs find their state by it. */
    if (given != &connect_opts) {
        printf("%s: wrong context\n", trid->traddr);
        exit(5);
    }
    allocate(ctrlr);
}

static void poll(struct spdk_nvme_probe_ctx *ctx)
{
    int result;
    if (!ctx)
        exit(6);
    while ((result = spdk_nvme_probe_poll_async(ctx)) == -EAGAIN) {}
    if (result != 0)
        exit(6);
}

static void connect(int i, const char *way)
{
    struct spdk_nvme_transport_id trid;
    struct spdk_nvme_ctrlr *ctrlr;
    memset(&trid, 0, sizeof trid);
    snprintf(trid.traddr, sizeof trid.traddr, "0000:%02d:00.0", i);
    spdk_nvme_ctrlr_get_default_ctrlr_opts(&connect_opts, sizeof connect_opts);
    connect_opts.arb_mechanism = own_mechanism;
    if (strcmp(way, "connect_async") == 0) {
        poll(spdk_nvme_connect_async(&trid, &connect_opts, on_connect));
        if (connect_opts.arb_mechanism != own_mechanism)
            exit(7);
        return;
    }
    ctrlr = strcmp(way, "connect_default") == 0 ? spdk_nvme_connect(&trid, NULL, 0)
                                                : spdk_nvme_connect(&trid, &connect_opts, sizeof connect_opts);
    if (!ctrlr) {
        printf("%s: not attached\n", trid.traddr);
        return;
    }
    allocate(ctrlr);
    spdk_nvme_detach(ctrlr);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    struct spdk_nvme_transport_id all;
    memset(&all, 0, sizeof all);
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], "nice=", 5) == 0 && syscall(SYS_ioprio_set, 1, 0, atoi(argv[i] + 5) << 13 | 4) != 0)
            return 8;
        if (strcmp(argv[i], "wrr") == 0)
            own_mechanism = SPDK_AMS_WRR;
        if (strncmp(argv[i], "priority=", 9) == 0)
            priority = atoi(argv[i] + 9);
        if (strcmp(argv[i], "short") == 0)
            opts_short = 1;
    }
    if (strcmp(way, "probe") == 0)
        printf("result %d\n", spdk_nvme_probe(NULL, &context, on_probe, on_attach, NULL));
    else if (strcmp(way, "probe_ext") == 0)
        printf("result %d\n", spdk_nvme_probe_ext(&all, &context, on_probe, on_attach, on_fail, NULL));
    else if (strcmp(way, "probe_async") == 0)
        poll(spdk_nvme_probe_async(&all, &context, on_probe, on_attach, NULL));
    else if (strcmp(way, "probe_async_ext") == 0)
        poll(spdk_nvme_probe_async_ext(&all, &context, on_probe, on_attach, on_fail, NULL));
    else
        for (int i = 1; i <= 3; i++)
            connect(i, way);
    printf("asked %d, failed %d\n", asked, failed);
    return 0;
}
