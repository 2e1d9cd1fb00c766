/*
 * A stand-in for libspdk_nvme.so with the declarations of spdk_abi.h: three controllers, one with weighted round robin and a
 * mechanism of its own, one with neither, one with weighted round robin alone. It refuses what SPDK refuses, calls its own functions
 * by their public names as SPDK does, checks that nothing behind an options structure is touched, and prints what it is given.
 *
 * Built with -DCTRLR_OPTS=…, -DQPAIR_OPTS=… and a soname, it stands for a release.
 */
#include "../spdk_abi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct spdk_nvme_ctrlr {
    const char *address;
    int cap_ams; /* bit 0: weighted round robin, bit 1: vendor specific */
    int attached;
    struct spdk_nvme_ctrlr_opts opts;
};

struct spdk_nvme_qpair {
    int priority;
};

struct spdk_nvme_probe_ctx {
    void *context;
    spdk_nvme_attach_cb attach;
    spdk_nvme_attach_fail_cb fail;
    struct spdk_nvme_ctrlr *waiting[3];
    struct spdk_nvme_transport_id trids[3];
    int polls;
};

static struct spdk_nvme_ctrlr ctrlrs[3] = {
    {.address = "0000:01:00.0", .cap_ams = 3}, {.address = "0000:02:00.0", .cap_ams = 0}, {.address = "0000:03:00.0", .cap_ams = 1}};

/* Options with a fence behind them, as large as this release has them. */
union ctrlr_opts {
    struct spdk_nvme_ctrlr_opts opts;
    unsigned char bytes[sizeof(struct spdk_nvme_ctrlr_opts) + 64];
};

static void fence(union ctrlr_opts *o)
{
    memset(o->bytes, 0x5a, sizeof o->bytes);
}

static void check_fence(const union ctrlr_opts *o)
{
    for (size_t i = CTRLR_OPTS; i < sizeof o->bytes; i++) {
        if (o->bytes[i] != 0x5a) {
            printf("byte %zu behind the options was written\n", i);
            exit(3);
        }
    }
}

void spdk_nvme_ctrlr_get_default_ctrlr_opts(struct spdk_nvme_ctrlr_opts *opts, size_t size)
{
    memset(opts, 0, size < CTRLR_OPTS ? size : CTRLR_OPTS);
    if (offsetof(struct spdk_nvme_ctrlr_opts, opts_size) + sizeof opts->opts_size <= size)
        opts->opts_size = size;
    opts->io_queue_size = 256;
}

const struct spdk_nvme_ctrlr_opts *spdk_nvme_ctrlr_get_opts(struct spdk_nvme_ctrlr *ctrlr)
{
    return &ctrlr->opts;
}

static int enable(struct spdk_nvme_ctrlr *ctrlr)
{
    int ams = ctrlr->opts.arb_mechanism;
    if (ams == SPDK_AMS_RR || (ams == SPDK_AMS_WRR && ctrlr->cap_ams & 1) || (ams == SPDK_AMS_VENDOR && ctrlr->cap_ams & 2))
        return 0;
    printf("%s: refuses mechanism %d\n", ctrlr->address, ams);
    return -EINVAL;
}

static struct spdk_nvme_probe_ctx *scan(const struct spdk_nvme_transport_id *only, void *context, spdk_nvme_probe_cb probe_cb,
                                        const struct spdk_nvme_ctrlr_opts *given)
{
    struct spdk_nvme_probe_ctx *ctx = calloc(1, sizeof *ctx);
    ctx->context = context;
    for (int i = 0; i < 3; i++) {
        struct spdk_nvme_transport_id *trid = &ctx->trids[i];
        union ctrlr_opts o;
        strcpy(trid->traddr, ctrlrs[i].address);
        if (ctrlrs[i].attached || (only && only->traddr[0] && strcmp(only->traddr, trid->traddr) != 0))
            continue;
        fence(&o);
        spdk_nvme_ctrlr_get_default_ctrlr_opts(&o.opts, CTRLR_OPTS);
        if (given)
            memcpy(&o.opts, given, CTRLR_OPTS);
        else if (probe_cb && !probe_cb(context, trid, &o.opts))
            continue;
        check_fence(&o);
        memcpy(&ctrlrs[i].opts, &o.opts, CTRLR_OPTS);
        ctx->waiting[i] = &ctrlrs[i];
    }
    return ctx;
}

struct spdk_nvme_probe_ctx *spdk_nvme_probe_async_ext(const struct spdk_nvme_transport_id *trid, void *context,
                                                      spdk_nvme_probe_cb probe_cb, spdk_nvme_attach_cb attach_cb,
                                                      spdk_nvme_attach_fail_cb fail_cb, spdk_nvme_remove_cb remove_cb)
{
    struct spdk_nvme_probe_ctx *ctx = scan(trid, context, probe_cb, NULL);
    (void)remove_cb;
    ctx->attach = attach_cb;
    ctx->fail = fail_cb;
    return ctx;
}

struct spdk_nvme_probe_ctx *spdk_nvme_probe_async(const struct spdk_nvme_transport_id *trid, void *context,
                                                  spdk_nvme_probe_cb probe_cb, spdk_nvme_attach_cb attach_cb,
                                                  spdk_nvme_remove_cb remove_cb)
{
    return spdk_nvme_probe_async_ext(trid, context, probe_cb, attach_cb, NULL, remove_cb);
}

struct spdk_nvme_probe_ctx *spdk_nvme_connect_async(const struct spdk_nvme_transport_id *trid, const struct spdk_nvme_ctrlr_opts *opts,
                                                    spdk_nvme_attach_cb attach_cb)
{
    struct spdk_nvme_probe_ctx *ctx = scan(trid, (void *)opts, NULL, opts);
    ctx->attach = attach_cb;
    return ctx;
}

/* Enables one controller after another, each when it has been asked twice. */
int spdk_nvme_probe_poll_async(struct spdk_nvme_probe_ctx *ctx)
{
    if (++ctx->polls < 2)
        return -EAGAIN;
    for (int i = 0; i < 3; i++) {
        struct spdk_nvme_ctrlr *ctrlr = ctx->waiting[i];
        if (!ctrlr)
            continue;
        ctx->waiting[i] = NULL;
        int error = enable(ctrlr);
        if (error == 0) {
            ctrlr->attached = 1;
            if (ctx->attach)
                ctx->attach(ctx->context, &ctx->trids[i], ctrlr, &ctrlr->opts);
        } else if (ctx->fail) {
            ctx->fail(ctx->context, &ctx->trids[i], error);
        }
        return -EAGAIN;
    }
    free(ctx);
    return 0;
}

static int run(struct spdk_nvme_probe_ctx *ctx)
{
    int result;
    while ((result = spdk_nvme_probe_poll_async(ctx)) == -EAGAIN) {}
    return result;
}

int spdk_nvme_probe_ext(const struct spdk_nvme_transport_id *trid, void *context, spdk_nvme_probe_cb probe_cb,
                        spdk_nvme_attach_cb attach_cb, spdk_nvme_attach_fail_cb fail_cb, spdk_nvme_remove_cb remove_cb)
{
    return run(spdk_nvme_probe_async_ext(trid, context, probe_cb, attach_cb, fail_cb, remove_cb));
}

int spdk_nvme_probe(const struct spdk_nvme_transport_id *trid, void *context, spdk_nvme_probe_cb probe_cb,
                    spdk_nvme_attach_cb attach_cb, spdk_nvme_remove_cb remove_cb)
{
    return spdk_nvme_probe_ext(trid, context, probe_cb, attach_cb, NULL, remove_cb);
}

static struct spdk_nvme_ctrlr *attached_at(const struct spdk_nvme_transport_id *trid)
{
    for (int i = 0; i < 3; i++)
        if (ctrlrs[i].attached && strcmp(trid->traddr, ctrlrs[i].address) == 0)
            return &ctrlrs[i];
    return NULL;
}

struct spdk_nvme_ctrlr *spdk_nvme_connect(const struct spdk_nvme_transport_id *trid, const struct spdk_nvme_ctrlr_opts *opts,
                                          size_t opts_size)
{
    struct spdk_nvme_ctrlr_opts own;
    if (opts) {
        spdk_nvme_ctrlr_get_default_ctrlr_opts(&own, CTRLR_OPTS);
        memcpy(&own, opts, opts_size < CTRLR_OPTS ? opts_size : CTRLR_OPTS);
    }
    run(spdk_nvme_connect_async(trid, opts ? &own : NULL, NULL));
    return attached_at(trid);
}

int spdk_nvme_detach(struct spdk_nvme_ctrlr *ctrlr)
{
    ctrlr->attached = 0;
    return 0;
}

void spdk_nvme_ctrlr_get_default_io_qpair_opts(struct spdk_nvme_ctrlr *ctrlr, struct spdk_nvme_io_qpair_opts *opts, size_t size)
{
    (void)ctrlr;
    memset(opts, 0, size < QPAIR_OPTS ? size : QPAIR_OPTS);
    if (size >= 8)
        opts->io_queue_size = 256;
}

struct spdk_nvme_qpair *spdk_nvme_ctrlr_alloc_io_qpair(struct spdk_nvme_ctrlr *ctrlr, const struct spdk_nvme_io_qpair_opts *given,
                                                       size_t size)
{
    struct spdk_nvme_io_qpair_opts opts;
    struct spdk_nvme_qpair *qpair;
    spdk_nvme_ctrlr_get_default_io_qpair_opts(ctrlr, &opts, QPAIR_OPTS);
    if (given)
        memcpy(&opts, given, size < QPAIR_OPTS ? size : QPAIR_OPTS);
    if (ctrlr->opts.arb_mechanism == SPDK_AMS_RR && opts.qprio != SPDK_QPRIO_URGENT) {
        printf("%s: refuses priority %d under round robin\n", ctrlr->address, opts.qprio);
        return NULL;
    }
    qpair = malloc(sizeof *qpair);
    qpair->priority = opts.qprio;
    printf("%s: mechanism %d, queue pair of priority %d, %u entries\n", ctrlr->address, ctrlr->opts.arb_mechanism, opts.qprio,
           opts.io_queue_size);
    return qpair;
}

int spdk_nvme_ctrlr_free_io_qpair(struct spdk_nvme_qpair *qpair)
{
    free(qpair);
    return 0;
}
