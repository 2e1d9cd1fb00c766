/*
 * weir.h - libweir: NVMe drives behind a URL, from C11 or C++.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * NAME
 *   A target is a drive named by a URL. A queue is one pair of submission and completion queues to it, for one thread at a
 *   time. Requests are asynchronous: they are submitted, and they end in weir_poll.
 *
 *       weir_t *drive = weir_open("nvme-tcp://127.0.0.1:4420/NQN?ns=1", NULL, &error);
 *       weir_queue_t *queue = weir_queue_create(drive, NULL, &error);
 *       char *buffer = weir_buffer_alloc(queue);
 *       weir_read(queue, buffer, 0, 4096, NULL, NULL);
 *       while (weir_poll(queue, &ended, 1) == 0) {}
 *       weir_queue_destroy(queue);
 *       weir_close(drive);
 *
 *   Build with `cc app.c $(pkg-config --cflags --libs weir)`.
 *
 * TARGETS
 *   local:KIND[?key=value&...]        a drive in this process: null, ram, file:PATH or a profile (p3700, ...)
 *   nvme-tcp://HOST:PORT/NQN[?ns=N]   a namespace of an NVMe/TCP subsystem
 *   vfio-user:PATH[?ns=N]             a namespace of an NVMe drive on a vfio-user socket
 *   vhost-user:PATH                   a virtio-blk device on a vhost-user socket
 *   pci:ADDRESS[?ns=N]                a namespace of an NVMe drive of this machine, which vfio-pci has (weir device bind)
 *
 * CLASS
 *   A queue belongs to an I/O class, by which the drive arbitrates. By default it is that of the thread that creates the
 *   queue, by its I/O priority: ionice class 1 is high, 2 (any level) is medium, 3 is low; a thread that nobody niced asks for
 *   nothing, and its queue is in its tenant's class. So `ionice -c3 app` is all that an application needs. The thread's
 *   priority is looked at again every 100 ms while the queue is polled, and the queue follows: over NVMe/TCP it is connected anew
 *   when nothing is in flight, and that one weir_poll waits for the network. The drive may put a queue lower than it asks, never
 *   higher than its tenant is.
 *
 * UNITS
 *   Offsets and lengths are bytes, multiples of the block size (weir_info_t). Times are named in milliseconds where they occur.
 *
 * THREADS
 *   Different queues may be used by different threads at the same time; so may a weir_t. One queue is for one thread at a time:
 *   a second thread that comes in meanwhile gets WEIR_EBUSY. A `local:` target and its queues are for the thread that opened
 *   it, and for no other (WEIR_EUSAGE). After fork() only the parent may go on using what it opened.
 *
 * OWNERSHIP
 *   Handles are freed by weir_close and weir_queue_destroy, in either order: a queue keeps its target. Buffers belong to their
 *   queue and end with it. Memory that a request names must stay as it is until the request has ended.
 *
 * ERRORS
 *   Functions that return int return 0 or a count, or one of the negative codes below. Functions that return a pointer return
 *   NULL and fill `error`, if it is given. Null or wrong arguments are errors, never undefined; a handle that was freed is not
 *   recognised. Nothing unwinds or throws out of the library. A callback must not throw or longjmp through it.
 *
 * COMPATIBILITY
 *   Structures begin with their size: fill them by their _init function. What a caller of an older header does not know keeps
 *   its default; what an older library does not know is refused. WEIR_ABI_VERSION is the number in the soname.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_ABI_VERSION 0

/* Codes. Text by weir_strerror. */
#define WEIR_OK 0
#define WEIR_EUSAGE (-1)        /* a null or wrong argument, or the wrong thread */
#define WEIR_ERANGE (-2)        /* not whole blocks, longer than max_io, or beyond the end of the drive */
#define WEIR_EAGAIN (-3)        /* as many requests in flight as the queue takes: poll first */
#define WEIR_EBUSY (-4)         /* in use: by another thread, by a callback, or by a request in flight */
#define WEIR_ENOMEM (-5)        /* no memory, or no further buffer */
#define WEIR_EUNREACHABLE (-6)  /* nobody answers there */
#define WEIR_EREFUSED (-7)      /* the other side said no */
#define WEIR_ECLOSED (-8)       /* the other side went away */
#define WEIR_EPROTOCOL (-9)     /* the other side broke the protocol */
#define WEIR_ETIMEOUT (-10)     /* the other side did not answer in time */
#define WEIR_EIO (-11)          /* the drive ended the request with an error: see the NVMe status */
#define WEIR_EINTERNAL (-12)    /* a bug in the library; the handle is of no further use */

/* Classes of weir_queue_opts_t and weir_queue_info_t. */
#define WEIR_CLASS_THREAD 0 /* by the I/O priority of the thread that creates the queue, followed */
#define WEIR_CLASS_TENANT 1 /* asks for nothing */
#define WEIR_CLASS_URGENT 2 /* where the operator allows it */
#define WEIR_CLASS_HIGH 3
#define WEIR_CLASS_MEDIUM 4
#define WEIR_CLASS_LOW 5

/* Flags of weir_opts_t. */
#define WEIR_HEADER_DIGEST 1u /* NVMe/TCP: CRC32C of headers */
#define WEIR_DATA_DIGEST 2u   /* NVMe/TCP: CRC32C of data */
#define WEIR_PACKED_RING 4u   /* vhost-user: packed rings, where the device has them */

typedef struct weir weir_t;
typedef struct weir_queue weir_queue_t;

/* Why a function returned NULL. */
typedef struct weir_error {
    int code;          /* one of the codes above */
    char message[252]; /* for people, in full sentences; ends with a zero byte */
} weir_error_t;

/* How to open a target. Zero means the default. */
typedef struct weir_opts {
    size_t size;
    const char *hostnqn;    /* who this host is (NVMe/TCP): decides its tenant [nqn.2026-11.io.weir:host:libweir] */
    uint32_t queues;        /* vfio-user, vhost-user, pci: queues that the target is opened with [1]; elsewhere queues come as they are created */
    uint32_t depth;         /* requests that may be in flight on a queue [128] */
    uint32_t max_io;        /* bytes of the longest request and of a buffer [131072] */
    uint32_t keep_alive_ms; /* NVMe/TCP: poll some queue of the target at least so often, or the target lets go [60000] */
    uint32_t flags;
    uint32_t reserved; /* 0 */
} weir_opts_t;

/* How to create a queue. */
typedef struct weir_queue_opts {
    size_t size;
    uint32_t io_class; /* WEIR_CLASS_*; a vhost-user device takes its class from this process and no other [THREAD] */
    uint32_t reserved; /* 0 */
} weir_queue_opts_t;

/* What a target is. */
typedef struct weir_info {
    size_t size;
    uint64_t capacity;   /* bytes of the namespace */
    uint32_t block_size; /* bytes of a block, a power of two */
    uint32_t nsid;       /* namespace, 1 where the transport has no such thing */
    uint32_t queues;     /* queues that may exist at the same time; 0: as many as the target grants */
    uint32_t reserved;
    char transport[16]; /* "local", "nvme-tcp", "vfio-user", "vhost-user" or "pci" */
} weir_info_t;

/* What a queue is, and how it stands. */
typedef struct weir_queue_info {
    size_t size;
    uint32_t depth;     /* requests that may be in flight */
    uint32_t max_io;    /* bytes of the longest request and of a buffer */
    uint32_t io_class;  /* what it asked for: WEIR_CLASS_TENANT, or URGENT to LOW */
    uint32_t in_flight; /* requests that have not ended */
    uint32_t buffers;   /* buffers handed out */
    uint32_t reserved;
} weir_queue_info_t;

/* A request that has ended. */
typedef struct weir_completion {
    void *user;      /* what the request was submitted with */
    int result;      /* WEIR_OK, WEIR_EIO, or why the queue broke */
    uint16_t status; /* NVMe status: SC in bits 7:0, SCT in 10:8, DNR in 14; 0 with any result but WEIR_EIO */
    uint16_t reserved;
} weir_completion_t;

/* Is called in weir_poll, in the thread that polls. May submit requests and handle buffers of this queue and do anything with
 * others; weir_poll and weir_queue_destroy on this queue are refused with WEIR_EBUSY meanwhile. */
typedef void (*weir_callback_t)(void *user, int result, uint16_t status);

static inline weir_opts_t weir_opts_init(void)
{
    weir_opts_t opts;
    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    return opts;
}

static inline weir_queue_opts_t weir_queue_opts_init(void)
{
    weir_queue_opts_t opts;
    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    return opts;
}

static inline weir_info_t weir_info_init(void)
{
    weir_info_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    return info;
}

static inline weir_queue_info_t weir_queue_info_init(void)
{
    weir_queue_info_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    return info;
}

/* The library's ABI: compare with WEIR_ABI_VERSION where it was not linked but loaded. */
uint32_t weir_abi_version(void);

/* The library's version, as "0.1.0". Static. */
const char *weir_version(void);

/* What a code means, in one sentence. Static, never NULL. */
const char *weir_strerror(int code);

/* What an NVMe status says, written to `text` of `size` bytes as snprintf does: the length that it wants comes back. */
int weir_status_text(uint16_t status, char *text, size_t size);

/* Opens a target. `opts` may be NULL. Waits for the target's answers, up to 10 s each. NULL on failure:
 * WEIR_EUSAGE (no such form of URL, an unknown option), WEIR_EUNREACHABLE, WEIR_EREFUSED, WEIR_EPROTOCOL, WEIR_ETIMEOUT. */
weir_t *weir_open(const char *url, const weir_opts_t *opts, weir_error_t *error);

/* Lets go of a target; queues that exist go on. NULL is nothing to do. */
int weir_close(weir_t *target);

/* What the target is: fills as much of `info` as its size says. */
int weir_info(weir_t *target, weir_info_t *info);

/* Creates a queue, of the calling thread's class unless `opts` say otherwise. `opts` may be NULL. Waits as weir_open does. NULL
 * on failure: as weir_open, and WEIR_EREFUSED where the target has no further queue. */
weir_queue_t *weir_queue_create(weir_t *target, const weir_queue_opts_t *opts, weir_error_t *error);

/* Destroys a queue with its buffers. Requests in flight may still be executed; nobody is told of their end. NULL is nothing
 * to do. WEIR_EBUSY from one of its callbacks or while another thread uses it. */
int weir_queue_destroy(weir_queue_t *queue);

/* How the queue stands: fills as much of `info` as its size says. */
int weir_queue_info(weir_queue_t *queue, weir_queue_info_t *info);

/* Why the queue broke: WEIR_OK and an empty message if it did not, else the code, which is also returned. */
int weir_queue_error(weir_queue_t *queue, weir_error_t *error);

/* A buffer of max_io bytes from which and to which the transport moves data itself: requests that name its first byte are not
 * copied. Other memory works as well, and is copied once. At most `depth` buffers a queue (fewer where the target's queues
 * are short). NULL when there are no more. At least 16-byte aligned; zeroed the first time. */
void *weir_buffer_alloc(weir_queue_t *queue);

/* Gives a buffer back. WEIR_EBUSY while a request names it, WEIR_EUSAGE for what is no buffer of this queue. NULL is nothing to
 * do. */
int weir_buffer_free(weir_queue_t *queue, void *buffer);

/* Submit a request; it leaves with the next weir_poll, together with others. When it has ended, weir_poll calls `callback`, if
 * there is one, with `user`, and reports it. WEIR_OK; WEIR_ERANGE, WEIR_EAGAIN, WEIR_EUSAGE or WEIR_EBUSY: nothing was
 * submitted; any other: the queue is broken.
 * flush makes finished writes durable; trim tells the drive that a range is not needed: what it reads as afterwards is the
 * drive's affair; write_zeroes makes it read as zeroes. These two are of at most max_io bytes as well. */
int weir_read(weir_queue_t *queue, void *buffer, uint64_t offset, uint32_t length, weir_callback_t callback, void *user);
int weir_write(weir_queue_t *queue, const void *buffer, uint64_t offset, uint32_t length, weir_callback_t callback, void *user);
int weir_trim(weir_queue_t *queue, uint64_t offset, uint32_t length, weir_callback_t callback, void *user);
int weir_write_zeroes(weir_queue_t *queue, uint64_t offset, uint32_t length, weir_callback_t callback, void *user);
int weir_flush(weir_queue_t *queue, weir_callback_t callback, void *user);

/* Sends what was submitted and ends at most `max` requests that are done, in the order in which the drive finished them: calls
 * the callback of each that has one, and writes each to `ended`, unless that is NULL. Never waits. Returns how many ended.
 * When the transport breaks, every request in flight ends with the reason; when none is left, the reason is returned. There is
 * no timeout for a request. */
int weir_poll(weir_queue_t *queue, weir_completion_t *ended, uint32_t max);

#ifdef __cplusplus
}
#endif

#endif
