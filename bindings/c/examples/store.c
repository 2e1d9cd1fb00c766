/*
 * store ADDRESS [directory]: a file of records in a store, written and read by many requests at once, and what is in the directory.
 *
 *     cc -O2 store.c $(pkg-config --cflags --libs weir) -o store
 *     ./store 127.0.0.1:4430
 *
 * Shows a program's way through the files of a store: connect, make a directory and a file, keep requests in flight on a queue, publish,
 * read back, list, remove. The directory, which is made, is deleted at the end with all that is in it.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir_store.h>

#define RECORD ((size_t)64 << 10)
#define RECORDS 256u
#define LANES 16u

/* One request after another in the same buffer. */
struct lane {
    unsigned char *buffer;
    uint64_t record;
    int writes;
};

static int fail(const char *what)
{
    fprintf(stderr, "store: %s: %s\n", what, weir_store_reason());
    return 1;
}

static unsigned char mark(uint64_t record)
{
    return (unsigned char)(record * 131 + 7);
}

static int begin(weir_file_t *file, weir_store_queue_t *queue, struct lane *lane)
{
    uint64_t offset = lane->record * RECORD;
    if (!lane->writes)
        return weir_file_begin_read(file, queue, lane->buffer, offset, RECORD, NULL, lane);
    memset(lane->buffer, mark(lane->record), RECORD);
    return weir_file_begin_write(file, queue, lane->buffer, offset, RECORD, NULL, lane);
}

/* Writes or reads all records, LANES of them at a time. */
static int run(weir_file_t *file, weir_store_queue_t *queue, struct lane *lanes, int writes)
{
    uint64_t next = 0, done = 0;
    for (; next < LANES; next++) {
        lanes[next].record = next;
        lanes[next].writes = writes;
        if (begin(file, queue, &lanes[next]) < 0)
            return fail("begin");
    }
    while (done < RECORDS) {
        weir_store_completion_t ended[LANES];
        int count = weir_store_poll(queue, ended, LANES, -1);
        if (count < 0)
            return fail("poll");
        for (int i = 0; i < count; i++, done++) {
            struct lane *lane = ended[i].user;
            if (ended[i].result < 0) {
                fprintf(stderr, "store: record %" PRIu64 ": %s\n", lane->record, ended[i].reason);
                return 1;
            }
            if (!writes && (ended[i].result != (int64_t)RECORD || lane->buffer[RECORD - 1] != mark(lane->record))) {
                fprintf(stderr, "store: record %" PRIu64 " has other bytes than were written\n", lane->record);
                return 1;
            }
            if (next < RECORDS) {
                lane->record = next++;
                if (begin(file, queue, lane) < 0)
                    return fail("begin");
            }
        }
    }
    printf("%s %u records of %zu bytes, %u at a time\n", writes ? "wrote" : "read", RECORDS, RECORD, LANES);
    return 0;
}

static int list(weir_store_t *store, const char *directory)
{
    weir_dir_t *names = weir_dir_open(store, directory, NULL);
    if (!names)
        return fail(directory);
    weir_entry_t entry = weir_entry_init();
    int more;
    while ((more = weir_dir_next(names, &entry)) > 0)
        printf("%s: %" PRIu64 " bytes\n", entry.name, entry.bytes);
    weir_dir_close(names);
    return more < 0 ? fail(directory) : 0;
}

static int use(weir_store_t *store, const char *directory)
{
    char path[512];
    snprintf(path, sizeof path, "%s/records", directory);
    if (weir_store_mkdir(store, directory, 0, WEIR_PARENTS) < 0)
        return fail("mkdir");
    weir_file_t *file = weir_file_open(store, path, WEIR_FILE_CREATE | WEIR_FILE_TRUNCATE, NULL, NULL);
    weir_store_queue_t *queue = weir_store_queue_create(store, LANES, NULL);
    if (!file || !queue)
        return fail("open");
    struct lane lanes[LANES];
    for (unsigned i = 0; i < LANES; i++) {
        lanes[i].buffer = malloc(RECORD);
        if (!lanes[i].buffer)
            return 1;
    }
    int failed = run(file, queue, lanes, 1) || (weir_file_flush(file) < 0 && fail("flush")) || run(file, queue, lanes, 0);
    /* It waits for what is in flight: then the buffers are ours again. */
    weir_store_queue_destroy(queue);
    for (unsigned i = 0; i < LANES; i++)
        free(lanes[i].buffer);
    if (weir_file_close(file) < 0 || failed)
        return failed ? failed : fail("close");
    if (weir_store_put(store, path, "replaced", 8, 0, NULL) < 0)
        return fail("put");
    if (list(store, directory))
        return 1;
    return weir_store_remove(store, directory, WEIR_RECURSIVE) < 0 ? fail("remove") : 0;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: store ADDRESS [directory]; the address is HOST:PORT or unix:PATH\n");
        return 2;
    }
    weir_error_t error;
    weir_store_t *store = weir_store_open(argv[1], NULL, &error);
    if (!store) {
        fprintf(stderr, "store: %s\n", error.message);
        return 1;
    }
    int failed = use(store, argc > 2 ? argv[2] : "/example-c");
    weir_store_close(store);
    return failed;
}
