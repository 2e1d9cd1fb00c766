/*
 * weir_store.h - libweir: the files of a store, from C11 or C++.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * NAME
 *   A store keeps files on drives; names come from its metadata service, bytes go straight from and to the drives. The address
 *   of a store is that of its metadata service: "HOST:PORT" or "unix:PATH".
 *
 *       weir_store_t *store = weir_store_open("127.0.0.1:4430", NULL, &error);
 *       weir_file_t *file = weir_file_open(store, "/a", WEIR_FILE_CREATE | WEIR_FILE_TRUNCATE, NULL, &error);
 *       weir_file_write(file, "hello", 0, 5);
 *       weir_file_close(file);
 *       weir_store_close(store);
 *
 *   Build with `cc app.c $(pkg-config --cflags --libs weir)`. The drives themselves are opened by weir.h.
 *
 * PATHS
 *   Paths are absolute: names of 1 to 255 bytes with "/" between them. They need not be UTF-8.
 *
 * UNITS
 *   Offsets, lengths and sizes are bytes, and any number of them; whole sectors of 512 bytes at multiples of 512 are not copied on
 *   the way to a drive. Times are nanoseconds since 1970, or named in milliseconds.
 *
 * VISIBILITY
 *   Others see what was written, and the size, when it is published: by weir_file_flush or weir_file_close. Then it is as durable as
 *   the store promises. More than 8 MiB that are not published may be published in part before. One client at a time has a file open
 *   to be written, and by one opening: the second is refused with -EBUSY. A file that was open for reading keeps its size.
 *
 * THREADS
 *   Stores, files and directories may be used by any number of threads at once. A queue is for one thread at a time: a second one that
 *   comes in meanwhile gets -EBUSY. After fork() only the parent may go on using what it opened; the child gets -EINVAL.
 *
 * OWNERSHIP
 *   What is opened is closed by the function beside it. A store may be closed before what was opened from it, which goes on. A
 *   handle that is null, was closed before or never was one is refused with -EINVAL; closing NULL is nothing to do. Memory is the
 *   caller's; that of a request of a queue must stay as it is until the request has ended.
 *
 * ERRORS
 *   Functions that return a number return 0, a count or a position, or a negative number of errno.h. Functions that return a pointer
 *   return NULL and fill `error`, if it is given: `code` is the same negative number. weir_store_reason says why, in a sentence.
 *
 *       -EINVAL      a null or wrong argument, a handle that is closed, no such class, a wrong name
 *       -ENOENT, -EEXIST, -ENOTDIR, -EISDIR, -ENOTEMPTY, -ENAMETOOLONG, -ELOOP     as open(2), mkdir(2), rename(2) and unlink(2)
 *       -EBUSY       another client has the file open to be written; the root; a queue or a file in use
 *       -EBADF       the file was not opened to be written
 *       -ENOSPC      no class of the file has room, or there are fewer nodes than copies
 *       -EFBIG       the file would be larger than one may be
 *       -ERANGE      the buffer is too short
 *       -EAGAIN      the queue is full; the service or a block is not ready: try again
 *       -ETIMEDOUT   it was not done before the deadline; a write may have been done in part
 *       -ENOTCONN    the store is not reached, or the session is over: what was written and not flushed is lost. Files that are
 *                    open fail from then on; calls of the store connect again
 *       -EIO         no copy can be read or written, a broken protocol, an error inside the library
 *
 *   Nothing unwinds or throws out of the library. A callback must not throw or longjmp through it.
 *
 * COMPATIBILITY
 *   As weir.h: structures begin with their size and are filled by their _init function.
 */
#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include <weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of weir_store_opts_t. */
#define WEIR_STORE_ALLOW_FILES 1u /* namespaces may be files of this machine, which the metadata service names */

/* Flags of calls; each call says which it knows, and refuses others. */
#define WEIR_FILE_WRITE 1u     /* to be written as well as read */
#define WEIR_FILE_CREATE 2u    /* made if it is not there; to be written */
#define WEIR_FILE_EXCLUSIVE 4u /* with CREATE: it is an error that it is there */
#define WEIR_FILE_TRUNCATE 8u  /* with WRITE or CREATE: cut to nothing */
#define WEIR_PARENTS 16u       /* directories on the way are made where they are missing */
#define WEIR_RECURSIVE 32u     /* a directory with all that is in it */
#define WEIR_REPLACE 64u       /* in the place of a file, or of an empty directory */
#define WEIR_NO_FOLLOW 128u    /* a symbolic link at the end of the path itself */

/* Kinds of weir_stat_t and weir_entry_t. */
#define WEIR_KIND_FILE 1
#define WEIR_KIND_DIRECTORY 2
#define WEIR_KIND_SYMLINK 3
#define WEIR_KIND_MULTIFILE 4
#define WEIR_KIND_TABLE 5

typedef struct weir_store weir_store_t;
typedef struct weir_file weir_file_t;
typedef struct weir_dir weir_dir_t;
typedef struct weir_store_queue weir_store_queue_t;

/* How to open a store. Zero means the default. */
typedef struct weir_store_opts {
    size_t size;
    const char *name;          /* what this client is called in `weir store client ls` [the program and its process] */
    const char *location;      /* where it is, as "rack1/node3" [not known] */
    const char *hostnqn;       /* who this host is to NVMe/TCP targets [nqn.2026-11.io.weir:host:store] */
    uint32_t deadline_ms;      /* how long a call may take [30000] */
    uint32_t drive_timeout_ms; /* how long a command waits for a drive that is away, before another copy is tried [5000] */
    uint32_t flags;            /* WEIR_STORE_* */
    uint32_t reserved;         /* 0 */
} weir_store_opts_t;

/* What a new file is made with. Zero means the default; a file that is there keeps what it has. */
typedef struct weir_file_opts {
    size_t size;
    const char *classes;  /* names of the classes of its blocks, best first, as "dram,flash" [those of the path's policy, or the store's] */
    const char *location; /* where its blocks should be [where the client is] */
    uint32_t copies;      /* copies of each block, 1 to 4 [the path's policy's, or 1] */
    uint32_t block;       /* bytes of a block: a power of two from 65536 to 4194304 [the store's] */
    uint32_t mode;        /* permissions, 12 bits [0644] */
    uint32_t uid;         /* its owner */
    uint32_t gid;         /* its group */
    uint32_t reserved;    /* 0 */
} weir_file_opts_t;

/* What a path leads to. */
typedef struct weir_stat {
    size_t size;
    uint64_t inode;       /* its number */
    uint64_t bytes;       /* of a file; of a symbolic link those of its target; else 0 */
    uint64_t created_ns;  /* when it was made */
    uint64_t modified_ns; /* when its bytes or names were changed last */
    uint32_t kind;        /* WEIR_KIND_* */
    uint32_t mode;        /* permissions, 12 bits */
    uint32_t uid;         /* its owner */
    uint32_t gid;         /* its group */
    uint32_t copies;      /* copies of each block */
    uint32_t block;       /* bytes of a block */
    char classes[256];    /* names of the classes of its blocks, best first, with commas between them; empty: the store's */
} weir_stat_t;

/* A name of a directory. Of a directory in it bytes, modified_ns and mode are 0: weir_store_stat knows them. */
typedef struct weir_entry {
    size_t size;
    uint64_t inode;       /* its number */
    uint64_t bytes;       /* of a file */
    uint64_t modified_ns; /* when its bytes were changed last */
    uint32_t kind;        /* WEIR_KIND_* */
    uint32_t mode;        /* permissions, 12 bits */
    char name[256];       /* ends with a zero byte */
} weir_entry_t;

/* A request of a queue that has ended. */
typedef struct weir_store_completion {
    void *user;         /* what the request was begun with */
    int64_t result;     /* bytes that were read or written, or a negative number of errno.h */
    const char *reason; /* why it failed, until the next weir_store_poll of the queue; NULL if it did not */
} weir_store_completion_t;

/* Is called in weir_store_poll, in the thread that polls. May begin requests on this queue and do anything with others;
 * weir_store_poll and weir_store_queue_destroy of this queue are refused with -EBUSY meanwhile. */
typedef void (*weir_store_callback_t)(const weir_store_completion_t *ended);

static inline weir_store_opts_t weir_store_opts_init(void)
{
    weir_store_opts_t opts;
    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    return opts;
}

static inline weir_file_opts_t weir_file_opts_init(void)
{
    weir_file_opts_t opts;
    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    return opts;
}

static inline weir_stat_t weir_stat_init(void)
{
    weir_stat_t stat;
    memset(&stat, 0, sizeof stat);
    stat.size = sizeof stat;
    return stat;
}

static inline weir_entry_t weir_entry_init(void)
{
    weir_entry_t entry;
    memset(&entry, 0, sizeof entry);
    entry.size = sizeof entry;
    return entry;
}

/* Why the last call of this thread that failed did: a sentence, which names the path and the drive where there is one. Valid until the
 * thread's next call that fails. Never NULL; empty where nothing has failed. */
const char *weir_store_reason(void);

/* Connects to a store. `opts` may be NULL. */
weir_store_t *weir_store_open(const char *address, const weir_store_opts_t *opts, weir_error_t *error);

/* Lets go of a store; what was opened from it goes on. */
int weir_store_close(weir_store_t *store);

/* What a path leads to: fills as much of `stat` as its size says. Flags: NO_FOLLOW. */
int weir_store_stat(weir_store_t *store, const char *path, uint32_t flags, weir_stat_t *stat);

/* Makes a directory. `mode` 0 is 0755. Flags: PARENTS; with it, that the directory is there is no error. */
int weir_store_mkdir(weir_store_t *store, const char *path, uint32_t mode, uint32_t flags);

/* Gives what is at `from` another name. Flags: REPLACE; without it, that something is at `to` is an error. */
int weir_store_rename(weir_store_t *store, const char *from, const char *to, uint32_t flags);

/* Deletes a name. Flags: RECURSIVE; without it a directory has to be empty. */
int weir_store_remove(weir_store_t *store, const char *path, uint32_t flags);

/* Makes or replaces a file as a whole, and publishes it; `length` comes back. What fits into an inode takes one request. Flags:
 * EXCLUSIVE, PARENTS. `opts` may be NULL. */
int64_t weir_store_put(weir_store_t *store, const char *path, const void *buffer, size_t length, uint32_t flags,
                       const weir_file_opts_t *opts);

/* All bytes of a file; how many they are. -ERANGE where the buffer of `size` bytes is too short for them. */
int64_t weir_store_get(weir_store_t *store, const char *path, void *buffer, size_t size);

/* The names of a directory, in the order of their bytes. */
weir_dir_t *weir_dir_open(weir_store_t *store, const char *path, weir_error_t *error);

/* The next name: 1, or 0 behind the last. Names are fetched in pages; one that stays in the directory is told once. */
int weir_dir_next(weir_dir_t *dir, weir_entry_t *entry);

int weir_dir_close(weir_dir_t *dir);

/* Opens a file. Flags: WRITE, CREATE, EXCLUSIVE, TRUNCATE, PARENTS; 0 is to be read. `opts` may be NULL. */
weir_file_t *weir_file_open(weir_store_t *store, const char *path, uint32_t flags, const weir_file_opts_t *opts,
                            weir_error_t *error);

/* Publishes what was written, and closes the file, also when that fails. -EBUSY while requests of a queue are in flight: then it
 * stays open. */
int weir_file_close(weir_file_t *file);

/* Closes the file without publishing what was not flushed. Of bytes that were written over published ones either may be there
 * afterwards; until that is settled reads of them may fail with -EAGAIN. */
int weir_file_abandon(weir_file_t *file);

/* Its size, with what was written to it. */
int64_t weir_file_size(weir_file_t *file);

/* Reads: how many bytes; fewer than `length` only at the end of the file. */
int64_t weir_file_read(weir_file_t *file, void *buffer, uint64_t offset, size_t length);

/* Writes all bytes: `length` comes back. Behind the end there are zeroes in between. */
int64_t weir_file_write(weir_file_t *file, const void *buffer, uint64_t offset, size_t length);

/* Writes all bytes behind the end: where they were written comes back. */
int64_t weir_file_append(weir_file_t *file, const void *buffer, size_t length);

/* Cuts the file to that size, or lengthens it by zeroes, and publishes it. */
int weir_file_truncate(weir_file_t *file, uint64_t size);

/* Publishes what was written: fsync. */
int weir_file_flush(weir_file_t *file);

/* Creates a queue for requests that do not wait: at most `depth` in flight, 1 to 4096, 0 for 32. Its requests may be of files of
 * several stores. */
weir_store_queue_t *weir_store_queue_create(weir_store_t *store, uint32_t depth, weir_error_t *error);

/* Destroys a queue. It waits until what is in flight has ended, by the deadline of the store; nobody is told of that. -EBUSY from one
 * of its callbacks or while another thread uses it. */
int weir_store_queue_destroy(weir_store_queue_t *queue);

/* Begin a request of at most 4 GiB (read) or 4 MiB (write), which ends in weir_store_poll. `callback` may be NULL. 0; -EAGAIN where the
 * queue is full; any other: nothing was begun. Requests of a queue may be carried out in any order. */
int weir_file_begin_read(weir_file_t *file, weir_store_queue_t *queue, void *buffer, uint64_t offset, size_t length,
                         weir_store_callback_t callback, void *user);
int weir_file_begin_write(weir_file_t *file, weir_store_queue_t *queue, const void *buffer, uint64_t offset, size_t length,
                          weir_store_callback_t callback, void *user);

/* Ends at most `max` requests that are over: calls the callback of each that has one, and writes each to `ended`, unless that is NULL.
 * Waits for one at most `timeout_ms` milliseconds: 0 never waits, -1 until one has ended. Returns how many ended; 0 at once where none is
 * in flight. */
int weir_store_poll(weir_store_queue_t *queue, weir_store_completion_t *ended, uint32_t max, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
