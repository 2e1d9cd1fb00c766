/*
 * Every function of weir_store.h, in order and out of order, on the store that is named: what holds, and what is refused.
 * Exit status 0: everything holds; 1: the first thing that does not is printed. The store has the class that is named.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir_store.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s does not hold; the last reason: %s\n", __FILE__, __LINE__, #what, weir_store_reason()); \
            exit(1); \
        } \
    } while (0)

#define LARGE ((size_t)5 << 20)
#define NOWHERE ((void *)(uintptr_t)0x5555555) /* no handle has this number */

static const char *address;
static const char *class_name;

static int said(const char *part)
{
    return strstr(weir_store_reason(), part) != NULL;
}

static unsigned char *pattern(size_t len, unsigned seed)
{
    unsigned char *bytes = malloc(len);
    CHECK(bytes);
    for (size_t i = 0; i < len; i++) {
        seed = seed * 1103515245u + 12345u;
        bytes[i] = (unsigned char)(seed >> 16);
    }
    return bytes;
}

static weir_file_t *open_file(weir_store_t *store, const char *path, uint32_t flags)
{
    weir_error_t error;
    weir_file_t *file = weir_file_open(store, path, flags, NULL, &error);
    CHECK(file && error.code == 0 && error.message[0] == 0);
    return file;
}

/* That a file cannot be opened so: with that number and words. */
static void refused(weir_store_t *store, const char *path, uint32_t flags, const weir_file_opts_t *opts, int code, const char *words)
{
    weir_error_t error;
    CHECK(!weir_file_open(store, path, flags, opts, &error));
    CHECK(error.code == -code && strstr(error.message, words) && said(words));
}

static void null_and_nonsense(void)
{
    weir_error_t error;
    unsigned char bytes[16];
    weir_stat_t stat = weir_stat_init();
    weir_entry_t entry = weir_entry_init();
    CHECK(weir_store_reason()[0] == 0);
    CHECK(!weir_store_open(NULL, NULL, &error) && error.code == -EINVAL && strstr(error.message, "address is null"));
    CHECK(!weir_store_open("nonsense", NULL, &error) && error.code == -EINVAL);
    CHECK(!weir_store_open("unix:/nonexistent/socket", NULL, &error) && error.code == -ENOTCONN);
    CHECK(!weir_store_open(NULL, NULL, NULL) && !weir_file_open(NULL, "/a", 0, NULL, NULL));
    weir_store_opts_t opts = weir_store_opts_init();
    opts.size = 0;
    CHECK(!weir_store_open("unix:/nonexistent", &opts, &error) && strstr(error.message, "_init"));
    opts = weir_store_opts_init();
    opts.flags = 0x100;
    CHECK(!weir_store_open("unix:/nonexistent", &opts, &error) && strstr(error.message, "0x100"));
    for (int round = 0; round < 2; round++) {
        void *none = round == 0 ? NULL : NOWHERE;
        const char *words = round == 0 ? "is null" : "closed, or never was open";
        CHECK(weir_store_stat(none, "/", 0, &stat) == -EINVAL && said("the store") && said(words));
        CHECK(weir_store_mkdir(none, "/a", 0, 0) == -EINVAL && weir_store_rename(none, "/a", "/b", 0) == -EINVAL);
        CHECK(weir_store_remove(none, "/a", 0) == -EINVAL && weir_store_put(none, "/a", bytes, 1, 0, NULL) == -EINVAL);
        CHECK(weir_store_get(none, "/a", bytes, 1) == -EINVAL && said(words));
        CHECK(!weir_dir_open(none, "/", &error) && error.code == -EINVAL && weir_dir_next(none, &entry) == -EINVAL);
        CHECK(!weir_file_open(none, "/a", 0, NULL, &error) && error.code == -EINVAL);
        CHECK(weir_file_size(none) == -EINVAL && said("the file") && weir_file_read(none, bytes, 0, 1) == -EINVAL);
        CHECK(weir_file_write(none, bytes, 0, 1) == -EINVAL && weir_file_append(none, bytes, 1) == -EINVAL);
        CHECK(weir_file_truncate(none, 0) == -EINVAL && weir_file_flush(none) == -EINVAL);
        CHECK(!weir_store_queue_create(none, 0, &error) && error.code == -EINVAL);
        CHECK(weir_file_begin_read(none, none, bytes, 0, 1, NULL, NULL) == -EINVAL);
        CHECK(weir_file_begin_write(none, none, bytes, 0, 1, NULL, NULL) == -EINVAL);
        CHECK(weir_store_poll(none, NULL, 1, 0) == -EINVAL && said("the queue"));
        int closed = round == 0 ? 0 : -EINVAL;
        CHECK(weir_store_close(none) == closed && weir_file_close(none) == closed && weir_file_abandon(none) == closed);
        CHECK(weir_dir_close(none) == closed && weir_store_queue_destroy(none) == closed);
    }
}

static void names(weir_store_t *store)
{
    weir_error_t error;
    weir_stat_t stat = weir_stat_init();
    CHECK(weir_store_mkdir(store, "/c", 0, 0) == 0 && weir_store_mkdir(store, "/c", 0, 0) == -EEXIST && said("/c"));
    CHECK(weir_store_mkdir(store, "/c", 0, WEIR_PARENTS) == 0);
    CHECK(weir_store_mkdir(store, "/c/x/y", 0700, 0) == -ENOENT);
    CHECK(weir_store_mkdir(store, "/c/x/y", 0700, WEIR_PARENTS) == 0);
    CHECK(weir_store_mkdir(store, "/c/z", 010000, 0) == -EINVAL && said("12 bits"));
    CHECK(weir_store_mkdir(store, "/c/z", 0, WEIR_REPLACE) == -EINVAL && said("0x40"));
    CHECK(weir_store_mkdir(store, "relative", 0, 0) == -EINVAL && weir_store_mkdir(store, NULL, 0, 0) == -EINVAL);
    CHECK(weir_store_stat(store, "/c/x/y", 0, &stat) == 0);
    CHECK(stat.kind == WEIR_KIND_DIRECTORY && stat.mode == 0700 && stat.inode > 1 && stat.size == sizeof stat);
    CHECK(weir_store_stat(store, "/c/none", 0, &stat) == -ENOENT && said("/c/none: no such file"));
    CHECK(weir_store_stat(store, "/c", 0, NULL) == -EINVAL && weir_store_stat(store, "/c", WEIR_FILE_WRITE, &stat) == -EINVAL);
    weir_stat_t old = { .size = offsetof(weir_stat_t, kind), .kind = 77 };
    CHECK(weir_store_stat(store, "/c", 0, &old) == 0 && old.inode > 1 && old.modified_ns > 0 && old.kind == 77);
    char longest[300] = "/c/";
    memset(longest + 3, 'n', 256);
    CHECK(weir_store_mkdir(store, longest, 0, 0) == -ENAMETOOLONG);
    longest[3 + 255] = 0;
    CHECK(weir_store_put(store, longest, "12345", 5, 0, NULL) == 5);
    CHECK(weir_store_put(store, "/c/\xff", "", 0, 0, NULL) == 0);
    CHECK(weir_store_put(store, "/c/x", "1", 1, 0, NULL) == -EISDIR || said("directory"));
    CHECK(weir_store_put(store, "/c/a", NULL, 1, 0, NULL) == -EINVAL && weir_store_put(store, "/c/a", NULL, 0, 0, NULL) == 0);
    CHECK(weir_store_put(store, "/c/a", "1", SIZE_MAX, 0, NULL) == -EINVAL && said("more than memory"));
    CHECK(weir_store_put(store, "/c/a", "", 0, WEIR_FILE_EXCLUSIVE, NULL) == -EEXIST);
    /* The names, in order; a directory has no attributes here. */
    weir_dir_t *dir = weir_dir_open(store, "/c", &error);
    weir_entry_t entry = weir_entry_init();
    CHECK(dir && weir_dir_next(dir, NULL) == -EINVAL);
    CHECK(weir_dir_next(dir, &entry) == 1 && strcmp(entry.name, "a") == 0 && entry.bytes == 0 && entry.mode == 0644);
    CHECK(weir_dir_next(dir, &entry) == 1 && strcmp(entry.name, longest + 3) == 0 && entry.bytes == 5);
    CHECK(weir_dir_next(dir, &entry) == 1 && strcmp(entry.name, "x") == 0 && entry.kind == WEIR_KIND_DIRECTORY);
    CHECK(weir_dir_next(dir, &entry) == 1 && strcmp(entry.name, "\xff") == 0 && entry.kind == WEIR_KIND_FILE);
    CHECK(weir_dir_next(dir, &entry) == 0 && weir_dir_next(dir, &entry) == 0);
    CHECK(weir_dir_close(dir) == 0 && weir_dir_close(dir) == -EINVAL && weir_dir_next(dir, &entry) == -EINVAL && said("directory"));
    CHECK(!weir_dir_open(store, "/c/a", &error) && error.code == -ENOTDIR);
    /* Renames. */
    CHECK(weir_store_rename(store, "/c/none", "/c/b", 0) == -ENOENT && weir_store_rename(store, "/c/a", longest, 0) == -EEXIST);
    CHECK(weir_store_rename(store, "/c/a", longest, WEIR_REPLACE) == 0);
    CHECK(weir_store_stat(store, longest, 0, &stat) == 0 && stat.bytes == 0);
    CHECK(weir_store_rename(store, "/c/x", "/c/x/y/z", 0) == -EINVAL && weir_store_rename(store, NULL, "/c/b", 0) == -EINVAL);
    /* Removed. */
    CHECK(weir_store_remove(store, "/c/x", 0) == -ENOTEMPTY && weir_store_remove(store, "/c/x", WEIR_PARENTS) == -EINVAL);
    CHECK(weir_store_remove(store, "/c", WEIR_RECURSIVE) == 0 && weir_store_stat(store, "/c", 0, &stat) == -ENOENT);
    CHECK(weir_store_remove(store, "/", WEIR_RECURSIVE) == -EBUSY && weir_store_remove(store, "/c", 0) == -ENOENT);
}

static void whole_files(weir_store_t *store)
{
    unsigned char *bytes = pattern(LARGE, 1), *back = calloc(1, LARGE);
    for (size_t len = 1; len <= LARGE; len = len * 37 + 11) {
        CHECK(weir_store_put(store, "/whole/f", bytes, len, WEIR_PARENTS, NULL) == (int64_t)len);
        CHECK(weir_store_get(store, "/whole/f", back, len - 1) == -ERANGE && said("the buffer"));
        CHECK(weir_store_get(store, "/whole/f", back, LARGE) == (int64_t)len && memcmp(bytes, back, len) == 0);
    }
    CHECK(weir_store_get(store, "/whole", back, LARGE) == -EISDIR && weir_store_get(store, "/whole/f", NULL, 5) == -EINVAL);
    CHECK(weir_store_remove(store, "/whole", WEIR_RECURSIVE) == 0);
    free(bytes);
    free(back);
}

static void flags_and_options(weir_store_t *store)
{
    weir_file_opts_t opts = weir_file_opts_init();
    refused(store, "/f", 0, NULL, ENOENT, "no such file");
    refused(store, NULL, 0, NULL, EINVAL, "path is null");
    refused(store, "/f", WEIR_FILE_EXCLUSIVE, NULL, EINVAL, "WEIR_FILE_CREATE");
    refused(store, "/f", WEIR_FILE_TRUNCATE, NULL, EINVAL, "WEIR_FILE_WRITE");
    refused(store, "/f", WEIR_RECURSIVE, NULL, EINVAL, "0x20");
    refused(store, "/no/f", WEIR_FILE_CREATE, NULL, ENOENT, "/no/f");
    opts.classes = "none";
    refused(store, "/f", WEIR_FILE_CREATE, &opts, EINVAL, "no class \"none\"");
    opts.classes = "\xff";
    refused(store, "/f", WEIR_FILE_CREATE, &opts, EINVAL, "UTF-8");
    opts = weir_file_opts_init();
    opts.copies = 5;
    refused(store, "/f", WEIR_FILE_CREATE, &opts, EINVAL, "copies");
    opts.copies = 256;
    refused(store, "/f", WEIR_FILE_CREATE, &opts, EINVAL, "256");
    opts = weir_file_opts_init();
    opts.block = 1000;
    refused(store, "/f", WEIR_FILE_CREATE, &opts, EINVAL, "block");
    opts = weir_file_opts_init();
    opts.reserved = 1;
    refused(store, "/f", WEIR_FILE_CREATE, &opts, EINVAL, "reserved");
    opts = weir_file_opts_init();
    opts.size = 1u << 30;
    refused(store, "/f", WEIR_FILE_CREATE, &opts, EINVAL, "_init");
    opts = weir_file_opts_init();
    opts.classes = class_name, opts.copies = 2, opts.block = 65536, opts.mode = 0600, opts.uid = 7, opts.gid = 8;
    weir_error_t error;
    weir_file_t *file = weir_file_open(store, "/p/q/f", WEIR_FILE_CREATE | WEIR_FILE_EXCLUSIVE | WEIR_PARENTS, &opts, &error);
    CHECK(file && weir_file_write(file, "abc", 0, 3) == 3);
    refused(store, "/p/q/f", WEIR_FILE_WRITE, NULL, EBUSY, "open for writing");
    CHECK(weir_file_close(file) == 0 && weir_file_close(file) == -EINVAL && weir_file_abandon(file) == -EINVAL);
    CHECK(weir_file_read(file, NULL, 0, 0) == -EINVAL && said("the file is closed"));
    refused(store, "/p/q/f", WEIR_FILE_CREATE | WEIR_FILE_EXCLUSIVE, NULL, EEXIST, "/p/q/f");
    weir_stat_t stat = weir_stat_init();
    CHECK(weir_store_stat(store, "/p/q/f", WEIR_NO_FOLLOW, &stat) == 0 && stat.bytes == 3 && stat.mode == 0600);
    CHECK(stat.uid == 7 && stat.gid == 8 && stat.copies == 2 && stat.block == 65536 && strcmp(stat.classes, class_name) == 0);
    /* CREATE alone leaves what is there, TRUNCATE does not. */
    file = open_file(store, "/p/q/f", WEIR_FILE_CREATE);
    CHECK(weir_file_size(file) == 3 && weir_file_close(file) == 0);
    file = open_file(store, "/p/q/f", WEIR_FILE_CREATE | WEIR_FILE_TRUNCATE);
    CHECK(weir_file_size(file) == 0 && weir_file_close(file) == 0);
    file = open_file(store, "/p/q/f", 0);
    unsigned char byte = 0;
    CHECK(weir_file_write(file, "x", 0, 1) == -EBADF && said("WEIR_FILE_WRITE") && weir_file_append(file, "x", 1) == -EBADF);
    CHECK(weir_file_truncate(file, 5) == -EBADF && weir_file_read(file, &byte, 0, 1) == 0 && weir_file_close(file) == 0);
    refused(store, "/p/q", 0, NULL, EISDIR, "/p/q");
    CHECK(weir_store_remove(store, "/p", WEIR_RECURSIVE) == 0);
}

static void bytes_of_a_file(weir_store_t *store)
{
    unsigned char *bytes = pattern(LARGE, 2), *back = calloc(1, LARGE + 10);
    weir_file_t *file = open_file(store, "/f", WEIR_FILE_CREATE | WEIR_FILE_EXCLUSIVE);
    CHECK(weir_file_write(file, bytes, 0, LARGE) == (int64_t)LARGE && weir_file_size(file) == (int64_t)LARGE);
    CHECK(weir_file_read(file, back, 0, LARGE + 10) == (int64_t)LARGE && memcmp(bytes, back, LARGE) == 0);
    CHECK(weir_file_read(file, back, LARGE - 3, 10) == 3 && weir_file_read(file, back, LARGE, 10) == 0);
    CHECK(weir_file_read(file, NULL, 0, 1) == -EINVAL && weir_file_read(file, back, 0, SIZE_MAX) == -EINVAL);
    CHECK(weir_file_read(file, NULL, 0, 0) == 0 && weir_file_write(file, NULL, 0, 0) == 0);
    CHECK(weir_file_write(file, NULL, 0, 1) == -EINVAL && weir_file_append(file, NULL, 1) == -EINVAL);
    CHECK(weir_file_write(file, bytes, UINT64_MAX, 2) == -EFBIG && said("/f"));
    CHECK(weir_file_flush(file) == 0);
    weir_stat_t stat = weir_stat_init();
    CHECK(weir_store_stat(store, "/f", 0, &stat) == 0 && stat.bytes == LARGE);
    CHECK(weir_file_append(file, "tail", 4) == (int64_t)LARGE && weir_file_append(file, "more", 4) == (int64_t)LARGE + 4);
    /* Others see it when it is published. */
    weir_file_t *other = open_file(store, "/f", 0);
    CHECK(weir_file_size(other) == (int64_t)LARGE && weir_file_close(other) == 0);
    CHECK(weir_file_close(file) == 0);
    other = open_file(store, "/f", WEIR_FILE_WRITE);
    CHECK(weir_file_read(other, back, LARGE, 100) == 8 && memcmp(back, "tailmore", 8) == 0);
    CHECK(weir_file_truncate(other, 10) == 0 && weir_file_truncate(other, 20) == 0);
    CHECK(weir_file_read(other, back, 0, 100) == 20 && memcmp(back, bytes, 10) == 0 && back[10] == 0 && back[19] == 0);
    /* What is abandoned is not published. */
    CHECK(weir_file_write(other, bytes, 1 << 20, 65536) == 65536 && weir_file_abandon(other) == 0);
    CHECK(weir_store_get(store, "/f", back, 100) == 20 && memcmp(back, bytes, 10) == 0);
    CHECK(weir_store_remove(store, "/f", 0) == 0);
    free(bytes);
    free(back);
}

struct chain {
    weir_file_t *file;
    weir_store_queue_t *queue;
    unsigned char buffer[4096];
    uint64_t next;
    int ended;
};

/* Reads on from its callback, and is not let poll or destroy. */
static void read_on(const weir_store_completion_t *ended)
{
    struct chain *chain = ended->user;
    CHECK(ended->result == 4096 && ended->reason == NULL && chain->buffer[0] == (unsigned char)chain->next);
    CHECK(weir_store_poll(chain->queue, NULL, 1, 0) == -EBUSY && said("callback"));
    CHECK(weir_store_queue_destroy(chain->queue) == -EBUSY);
    chain->ended++;
    if (++chain->next < 32)
        CHECK(weir_file_begin_read(chain->file, chain->queue, chain->buffer, chain->next * 4096, 4096, read_on, chain) == 0);
}

static void requests_that_do_not_wait(weir_store_t *store)
{
    enum { COUNT = 32, SIZE = 128 << 10 };
    weir_error_t error;
    CHECK(!weir_store_queue_create(store, 5000, &error) && error.code == -EINVAL && strstr(error.message, "5000"));
    weir_store_queue_t *queue = weir_store_queue_create(store, COUNT, &error);
    weir_file_t *file = open_file(store, "/q", WEIR_FILE_CREATE);
    CHECK(queue && weir_store_poll(queue, NULL, 8, -1) == 0 && weir_store_poll(queue, NULL, 0, 0) == 0);
    unsigned char *bytes = pattern((size_t)COUNT * SIZE, 3), *back = calloc(COUNT, SIZE);
    weir_store_completion_t ended[COUNT];
    for (int reads = 0; reads < 2; reads++) {
        uintptr_t seen = 0;
        for (uintptr_t i = 0; i < COUNT; i++) {
            size_t at = i * SIZE;
            int begun = reads ? weir_file_begin_read(file, queue, back + at, at, SIZE, NULL, (void *)i)
                              : weir_file_begin_write(file, queue, bytes + at, at, SIZE, NULL, (void *)i);
            CHECK(begun == 0);
        }
        CHECK(weir_file_begin_read(file, queue, back, 0, 1, NULL, NULL) == -EAGAIN && said("poll first"));
        CHECK(weir_file_close(file) == -EBUSY && said("in flight"));
        for (int have = 0; have < COUNT;) {
            int got = weir_store_poll(queue, ended, 5, -1);
            CHECK(got > 0 && got <= 5);
            for (int i = 0; i < got; i++) {
                CHECK(ended[i].result == SIZE && ended[i].reason == NULL && !(seen >> (uintptr_t)ended[i].user & 1));
                seen |= (uintptr_t)1 << (uintptr_t)ended[i].user;
            }
            have += got;
        }
        CHECK(weir_store_poll(queue, ended, 5, -1) == 0);
    }
    CHECK(memcmp(bytes, back, (size_t)COUNT * SIZE) == 0);
    /* What is wrong at once, and what is told at the end. */
    CHECK(weir_file_begin_read(file, queue, NULL, 0, 1, NULL, NULL) == -EINVAL);
    CHECK(weir_file_begin_write(file, queue, bytes, 0, (4 << 20) + 1, NULL, NULL) == -EINVAL && said("4194304"));
    CHECK(weir_file_begin_read(file, NULL, back, 0, 1, NULL, NULL) == -EINVAL && said("queue is null"));
    CHECK(weir_file_begin_write(file, queue, bytes, UINT64_MAX - 1, 4096, NULL, &error) == 0);
    CHECK(weir_store_poll(queue, ended, 1, -1) == 1 && ended[0].result == -EFBIG && ended[0].user == &error);
    CHECK(strstr(ended[0].reason, "/q: "));
    CHECK(weir_file_begin_read(file, queue, back, (uint64_t)COUNT * SIZE - 5, 100, NULL, NULL) == 0);
    CHECK(weir_store_poll(queue, ended, 1, 60000) == 1 && ended[0].result == 5);
    /* From callbacks. */
    static struct chain chain;
    for (size_t i = 0; i < 32; i++) {
        memset(bytes + i * 4096, (int)i, 4096);
    }
    CHECK(weir_file_write(file, bytes, 0, 32 * 4096) == 32 * 4096);
    chain.file = file, chain.queue = queue;
    CHECK(weir_file_begin_read(file, queue, chain.buffer, 0, 4096, read_on, &chain) == 0);
    while (chain.ended < 32)
        CHECK(weir_store_poll(queue, NULL, 4, 1000) >= 0);
    /* Destroyed with requests in flight, whose memory is free afterwards. */
    for (size_t i = 0; i < COUNT; i++)
        CHECK(weir_file_begin_read(file, queue, back + i * SIZE, i * SIZE, SIZE, NULL, NULL) == 0);
    CHECK(weir_store_queue_destroy(queue) == 0);
    free(bytes);
    free(back);
    CHECK(weir_store_queue_destroy(queue) == -EINVAL && weir_store_poll(queue, NULL, 1, 0) == -EINVAL);
    CHECK(weir_file_close(file) == 0 && weir_store_remove(store, "/q", 0) == 0);
}

struct worker {
    weir_store_t *store;
    weir_file_t *file;
    unsigned number;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    unsigned char bytes[1000], back[1000];
    for (unsigned i = 0; i < 50; i++) {
        memset(bytes, (int)(worker->number * 50 + i), sizeof bytes);
        uint64_t at = (uint64_t)(worker->number * 50 + i) * sizeof bytes;
        CHECK(weir_file_write(worker->file, bytes, at, sizeof bytes) == (int64_t)sizeof bytes);
        CHECK(weir_file_read(worker->file, back, at, sizeof back) == (int64_t)sizeof back && memcmp(bytes, back, sizeof back) == 0);
        weir_stat_t stat = weir_stat_init();
        CHECK(weir_store_stat(worker->store, "/none", 0, &stat) == -ENOENT && said("/none"));
    }
    return NULL;
}

static void threads_and_processes(weir_store_t *store)
{
    weir_file_t *file = open_file(store, "/t", WEIR_FILE_CREATE);
    pthread_t threads[4];
    struct worker workers[4];
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (struct worker){ store, file, i };
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int holds = weir_file_size(file) == -EINVAL && said("forked") && weir_file_close(file) == -EINVAL
                    && weir_store_mkdir(store, "/child", 0, 0) == -EINVAL && weir_store_close(store) == -EINVAL;
        /* Another program: what this process has by the fork is of no account to a leak check. */
        if (holds)
            execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(weir_file_size(file) == 200 * 1000 && weir_file_close(file) == 0 && weir_store_remove(store, "/t", 0) == 0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--layout") == 0) {
#define SIZE_OF(type) printf(#type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
        SIZE_OF(weir_store_opts_t), FIELD(weir_store_opts_t, name), FIELD(weir_store_opts_t, location);
        FIELD(weir_store_opts_t, hostnqn), FIELD(weir_store_opts_t, deadline_ms), FIELD(weir_store_opts_t, drive_timeout_ms);
        FIELD(weir_store_opts_t, flags), FIELD(weir_store_opts_t, reserved);
        SIZE_OF(weir_file_opts_t), FIELD(weir_file_opts_t, classes), FIELD(weir_file_opts_t, location);
        FIELD(weir_file_opts_t, copies), FIELD(weir_file_opts_t, block), FIELD(weir_file_opts_t, mode);
        FIELD(weir_file_opts_t, uid), FIELD(weir_file_opts_t, gid), FIELD(weir_file_opts_t, reserved);
        SIZE_OF(weir_stat_t), FIELD(weir_stat_t, inode), FIELD(weir_stat_t, bytes), FIELD(weir_stat_t, created_ns);
        FIELD(weir_stat_t, modified_ns), FIELD(weir_stat_t, kind), FIELD(weir_stat_t, mode), FIELD(weir_stat_t, uid);
        FIELD(weir_stat_t, gid), FIELD(weir_stat_t, copies), FIELD(weir_stat_t, block), FIELD(weir_stat_t, classes);
        SIZE_OF(weir_entry_t), FIELD(weir_entry_t, inode), FIELD(weir_entry_t, bytes), FIELD(weir_entry_t, modified_ns);
        FIELD(weir_entry_t, kind), FIELD(weir_entry_t, mode), FIELD(weir_entry_t, name);
        SIZE_OF(weir_store_completion_t), FIELD(weir_store_completion_t, user), FIELD(weir_store_completion_t, result);
        FIELD(weir_store_completion_t, reason);
        return 0;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: store ADDRESS CLASS | store --layout\n");
        return 2;
    }
    address = argv[1], class_name = argv[2];
    null_and_nonsense();
    weir_error_t error;
    weir_store_opts_t opts = weir_store_opts_init();
    opts.name = "store.c", opts.location = "here", opts.deadline_ms = 60000, opts.flags = WEIR_STORE_ALLOW_FILES;
    weir_store_t *store = weir_store_open(address, &opts, &error);
    if (!store) {
        fprintf(stderr, "%s: %s\n", address, error.message);
        return 1;
    }
    names(store);
    whole_files(store);
    flags_and_options(store);
    bytes_of_a_file(store);
    requests_that_do_not_wait(store);
    threads_and_processes(store);
    /* A file goes on without the handle of its store. */
    weir_file_t *file = open_file(store, "/last", WEIR_FILE_CREATE);
    CHECK(weir_store_close(store) == 0 && weir_store_close(store) == -EINVAL && weir_store_mkdir(store, "/x", 0, 0) == -EINVAL);
    CHECK(weir_file_write(file, "last", 0, 4) == 4 && weir_file_close(file) == 0);
    puts("everything holds");
    return 0;
}
