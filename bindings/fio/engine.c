/*
 * libweir-fio.so: fio's engine for Weir targets.
 *
 *     fio --name=job --ioengine=external:libweir-fio.so --url=nvme-tcp://127.0.0.1:4420/NQN --rw=randread --iodepth=32
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A job is a queue: opened by the thread or process that runs it, after fio has set its I/O priority (prioclass=), so that the queue has
 * that class. Built against the headers of the fio that loads it (`./weir fio-engine`): fio compares FIO_IOOPS_VERSION when it loads an
 * engine, and refuses another one.
 */
#include "fio.h"
#include "optgroup.h"

#include <weir.h>

/* The callbacks of struct ioengine_ops that are used here have had their types since this version (fio 3.27). */
#if FIO_IOOPS_VERSION < 30
#error "this fio is too old: the engine wants FIO_IOOPS_VERSION 30 or later (fio 3.27); name a newer --fio-source"
#endif

struct weir_options {
    void *pad; /* fio takes an offset of 0 for no option */
    char *url;
    char *hostnqn;
    unsigned int io_class;
};

static struct fio_option options[] = {
    {
        .name = "url",
        .lname = "Weir target",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct weir_options, url),
        .help = "local:KIND, nvme-tcp://HOST:PORT/NQN?ns=N, vfio-user:PATH, vhost-user:PATH or pci:ADDRESS",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "hostnqn",
        .lname = "Host NQN",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct weir_options, hostnqn),
        .help = "Who connects over NVMe/TCP: decides the tenant",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "class",
        .lname = "I/O class",
        .type = FIO_OPT_STR,
        .off1 = offsetof(struct weir_options, io_class),
        .def = "thread",
        .help = "Class of the job's queue",
        .posval =
            {
                {.ival = "thread", .oval = WEIR_CLASS_THREAD, .help = "That of the job's I/O priority (prioclass, ionice)"},
                {.ival = "tenant", .oval = WEIR_CLASS_TENANT, .help = "The tenant's"},
                {.ival = "urgent", .oval = WEIR_CLASS_URGENT, .help = "Where the operator allows it"},
                {.ival = "high", .oval = WEIR_CLASS_HIGH},
                {.ival = "medium", .oval = WEIR_CLASS_MEDIUM},
                {.ival = "low", .oval = WEIR_CLASS_LOW},
            },
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {.name = NULL},
};

struct job {
    weir_t *target;
    weir_queue_t *queue;
    weir_completion_t *ended;
};

static int errno_of(int code)
{
    switch (code) {
    case WEIR_OK: return 0;
    case WEIR_EUSAGE:
    case WEIR_ERANGE: return EINVAL;
    case WEIR_ENOMEM: return ENOMEM;
    case WEIR_EUNREACHABLE: return ECONNREFUSED;
    case WEIR_EREFUSED: return EACCES;
    case WEIR_ECLOSED: return ECONNRESET;
    case WEIR_EPROTOCOL: return EPROTO;
    case WEIR_ETIMEOUT: return ETIMEDOUT;
    default: return EIO;
    }
}

static weir_t *open_target(struct thread_data *td, weir_error_t *error)
{
    struct weir_options *o = td->eo;
    weir_opts_t opts = weir_opts_init();
    if (weir_abi_version() != WEIR_ABI_VERSION) {
        error->code = WEIR_EUSAGE;
        snprintf(error->message, sizeof error->message, "libweir has ABI %u, and the engine was built for %u", weir_abi_version(),
                 (unsigned)WEIR_ABI_VERSION);
        return NULL;
    }
    if (!o->url || !*o->url) {
        error->code = WEIR_EUSAGE;
        snprintf(error->message, sizeof error->message, "no target: the option url names it, as url=local:ram");
        return NULL;
    }
    opts.hostnqn = o->hostnqn;
    opts.depth = td->o.iodepth;
    opts.max_io = (uint32_t)td_max_bs(td);
    return weir_open(o->url, &opts, error);
}

static int failed(struct thread_data *td, const weir_error_t *error)
{
    int code = errno_of(error->code);
    log_err("weir: %s\n", error->message);
    td_verror(td, code, "weir");
    return code;
}

/* In the process that starts the jobs: asks how large the drive is, and lets go of it. */
static int weir_setup(struct thread_data *td)
{
    weir_error_t error;
    weir_info_t info = weir_info_init();
    weir_t *target = open_target(td, &error);
    if (!target)
        return failed(td, &error);
    weir_info(target, &info);
    weir_close(target);
    if (!td->files_index) {
        add_file(td, "weir", 0, 0);
        td->o.nr_files = td->o.nr_files ? td->o.nr_files : 1;
        td->o.open_files++;
    }
    td->files[0]->real_file_size = info.capacity;
    fio_file_set_size_known(td->files[0]);
    return 0;
}

static void weir_cleanup(struct thread_data *td)
{
    struct job *job = td->io_ops_data;
    if (!job)
        return;
    weir_queue_destroy(job->queue);
    weir_close(job->target);
    free(job->ended);
    free(job);
    td->io_ops_data = NULL;
}

/* In the thread or process that runs the job. */
static int weir_init(struct thread_data *td)
{
    struct weir_options *o = td->eo;
    weir_error_t error = {.code = WEIR_ENOMEM, .message = "no memory"};
    weir_queue_opts_t opts = weir_queue_opts_init();
    weir_queue_info_t info = weir_queue_info_init();
    struct job *job = calloc(1, sizeof *job);
    td->io_ops_data = job;
    opts.io_class = o->io_class;
    if (job && (job->ended = calloc(td->o.iodepth, sizeof *job->ended)) && (job->target = open_target(td, &error)))
        job->queue = weir_queue_create(job->target, &opts, &error);
    if (job && job->queue && weir_queue_info(job->queue, &info) == WEIR_OK && info.max_io < td_max_bs(td)) {
        snprintf(error.message, sizeof error.message, "the target takes at most %u bytes in a request", info.max_io);
        error.code = WEIR_ERANGE;
    } else if (job && job->queue) {
        return 0;
    }
    weir_cleanup(td);
    return failed(td, &error);
}

static enum fio_q_status weir_queue_io(struct thread_data *td, struct io_u *io_u)
{
    struct job *job = td->io_ops_data;
    uint32_t length = (uint32_t)io_u->xfer_buflen;
    int result;
    fio_ro_check(td, io_u);
    switch (io_u->ddir) {
    case DDIR_READ: result = weir_read(job->queue, io_u->xfer_buf, io_u->offset, length, NULL, io_u); break;
    case DDIR_WRITE: result = weir_write(job->queue, io_u->xfer_buf, io_u->offset, length, NULL, io_u); break;
    case DDIR_TRIM: result = weir_trim(job->queue, io_u->offset, length, NULL, io_u); break;
    case DDIR_SYNC:
    case DDIR_DATASYNC: result = weir_flush(job->queue, NULL, io_u); break;
    default: result = WEIR_EUSAGE;
    }
    if (result == WEIR_OK)
        return FIO_Q_QUEUED;
    if (result == WEIR_EAGAIN)
        return FIO_Q_BUSY;
    io_u->error = errno_of(result);
    td_verror(td, io_u->error, "submit");
    return FIO_Q_COMPLETED;
}

/* Sends what was queued. A queue that broke says so in weir_getevents, request by request. */
static int weir_commit(struct thread_data *td)
{
    struct job *job = td->io_ops_data;
    weir_poll(job->queue, NULL, 0);
    return 0;
}

static int weir_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *patience)
{
    struct job *job = td->io_ops_data;
    struct timespec begin, now;
    unsigned int have = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        int got = weir_poll(job->queue, job->ended + have, max - have);
        if (got < 0)
            return have ? (int)have : -errno_of(got);
        have += (unsigned int)got;
        if (have >= min)
            return (int)have;
        if (patience) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            int64_t waited = (int64_t)(now.tv_sec - begin.tv_sec) * 1000000000 + (now.tv_nsec - begin.tv_nsec);
            if (waited >= (int64_t)patience->tv_sec * 1000000000 + patience->tv_nsec)
                return (int)have;
        }
    }
}

static struct io_u *weir_event(struct thread_data *td, int event)
{
    struct job *job = td->io_ops_data;
    const weir_completion_t *ended = &job->ended[event];
    struct io_u *io_u = ended->user;
    io_u->error = errno_of(ended->result);
    if (ended->result == WEIR_EIO) {
        char text[128];
        weir_status_text(ended->status, text, sizeof text);
        log_err("weir: %s at offset %llu: %s\n", io_ddir_name(io_u->ddir), io_u->offset, text);
    }
    return io_u;
}

static int weir_open_file(struct thread_data *td, struct fio_file *file)
{
    (void)td, (void)file;
    return 0;
}

static int weir_close_file(struct thread_data *td, struct fio_file *file)
{
    (void)td, (void)file;
    return 0;
}

/* There is no cache to drop. */
static int weir_invalidate(struct thread_data *td, struct fio_file *file)
{
    (void)td, (void)file;
    return 0;
}

struct ioengine_ops ioengine = {
    .name = "weir",
    .version = FIO_IOOPS_VERSION,
    .flags = FIO_RAWIO | FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL,
    .setup = weir_setup,
    .init = weir_init,
    .queue = weir_queue_io,
    .commit = weir_commit,
    .getevents = weir_getevents,
    .event = weir_event,
    .cleanup = weir_cleanup,
    .open_file = weir_open_file,
    .close_file = weir_close_file,
    .invalidate = weir_invalidate,
    .options = options,
    .option_struct_size = sizeof(struct weir_options),
};
