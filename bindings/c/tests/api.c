/*
 * Every function of weir.h, in order and out of order, on the target that is named: what holds, and what is refused.
 * Exit status 0: everything holds; 1: the first thing that does not is printed. The drive is written to.
 */
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weir.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

#define BLOCK 4096u

static const char *url;

static int is_local(void)
{
    return strncmp(url, "local:", 6) == 0;
}

/* Polls until `count` requests have ended, in the order in which they do. */
static void wait_for(weir_queue_t *queue, weir_completion_t *ended, uint32_t count)
{
    uint32_t have = 0;
    while (have < count) {
        int got = weir_poll(queue, ended + have, count - have);
        CHECK(got >= 0);
        have += (uint32_t)got;
    }
}

static void one(weir_queue_t *queue, int submitted)
{
    weir_completion_t ended;
    CHECK(submitted == WEIR_OK);
    wait_for(queue, &ended, 1);
    CHECK(ended.result == WEIR_OK && ended.status == 0);
}

static void fill(unsigned char *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++) {
        seed = seed * 1103515245u + 12345u;
        bytes[i] = (unsigned char)(seed >> 16);
    }
}

static int all_zero(const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i])
            return 0;
    return 1;
}

static weir_t *open_target(uint32_t depth)
{
    weir_error_t error;
    weir_opts_t opts = weir_opts_init();
    opts.depth = depth;
    opts.max_io = 64 * 1024;
    opts.queues = 2;
    weir_t *target = weir_open(url, &opts, &error);
    if (!target)
        fprintf(stderr, "%s\n", error.message);
    CHECK(target && error.code == WEIR_OK && error.message[0] == 0);
    return target;
}

static weir_queue_t *create(weir_t *target)
{
    weir_error_t error;
    weir_queue_t *queue = weir_queue_create(target, NULL, &error);
    if (!queue)
        fprintf(stderr, "%s\n", error.message);
    CHECK(queue);
    return queue;
}

static void about_the_library(void)
{
    CHECK(weir_abi_version() == WEIR_ABI_VERSION);
    CHECK(strlen(weir_version()) >= 5);
    for (int code = WEIR_OK; code >= WEIR_EINTERNAL; code--)
        CHECK(strcmp(weir_strerror(code), "no such code") != 0);
    CHECK(strcmp(weir_strerror(1), "no such code") == 0 && strcmp(weir_strerror(-13), "no such code") == 0);
    char text[8];
    CHECK(weir_status_text(0x80, NULL, 0) > 8);
    CHECK(weir_status_text(0x80, text, sizeof text) > 8 && strlen(text) == 7);
}

static void refusals_of_open(void)
{
    static const char *const bad[] = {"", "nonsense", "local:", "local:nosuch", "local:ram?nokey=1", "nvme-tcp://127.0.0.1/x"};
    weir_error_t error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!weir_open(bad[i], NULL, &error));
        CHECK(error.code == WEIR_EUSAGE && strlen(error.message) > 10);
        CHECK(!weir_open(bad[i], NULL, NULL));
    }
    CHECK(!weir_open(NULL, NULL, &error) && error.code == WEIR_EUSAGE);
    CHECK(!weir_open("vhost-user:/nonexistent/socket", NULL, &error) && error.code == WEIR_EUNREACHABLE);
    CHECK(!weir_open("vfio-user:/nonexistent/socket", NULL, &error) && error.code == WEIR_EUNREACHABLE);
    CHECK(!weir_open("nvme-tcp://127.0.0.1:1/nqn.x?ns=1", NULL, &error) && error.code == WEIR_EUNREACHABLE);
    weir_opts_t opts = weir_opts_init();
    opts.flags = 0x80000000u;
    CHECK(!weir_open(url, &opts, &error) && error.code == WEIR_EUSAGE && strstr(error.message, "flags"));
    opts = weir_opts_init();
    opts.reserved = 1;
    CHECK(!weir_open(url, &opts, &error) && error.code == WEIR_EUSAGE);
    opts = weir_opts_init();
    opts.depth = 1000000;
    CHECK(!weir_open(url, &opts, &error) && error.code == WEIR_EUSAGE && strstr(error.message, "depth"));
    memset(&opts, 0, sizeof opts);
    CHECK(!weir_open(url, &opts, &error) && error.code == WEIR_EUSAGE && strstr(error.message, "size"));
    memset(&opts, 0xff, sizeof opts);
    CHECK(!weir_open(url, &opts, &error) && error.code == WEIR_EUSAGE);
}

/* Callers of older and of newer headers. */
static void sizes_of_options(void)
{
    struct {
        weir_opts_t opts;
        uint64_t later;
    } newer = {.opts = weir_opts_init()};
    weir_error_t error;
    newer.opts.size = sizeof newer;
    weir_t *target = weir_open(url, &newer.opts, &error);
    CHECK(target);
    struct {
        weir_info_t info;
        unsigned char later[16];
    } info = {.info = weir_info_init()};
    memset(info.later, 0xa5, sizeof info.later);
    info.info.size = sizeof info;
    CHECK(weir_info(target, &info.info) == WEIR_OK && info.info.size == sizeof info && info.info.capacity > 0);
    CHECK(info.later[0] == 0xa5 && info.later[15] == 0xa5);
    weir_info_t old = weir_info_init();
    memset(&old, 0xa5, sizeof old);
    old.size = offsetof(weir_info_t, block_size);
    CHECK(weir_info(target, &old) == WEIR_OK && old.capacity == info.info.capacity && old.block_size == 0xa5a5a5a5u);
    old.size = 0;
    CHECK(weir_info(target, &old) == WEIR_EUSAGE);
    CHECK(weir_close(target) == WEIR_OK);
    newer.later = 1;
    CHECK(!weir_open(url, &newer.opts, &error) && error.code == WEIR_EUSAGE && strstr(error.message, "older"));
    newer.opts.size = offsetof(weir_opts_t, queues);
    target = weir_open(url, &newer.opts, &error);
    CHECK(target && weir_close(target) == WEIR_OK);
}

static void null_is_refused(weir_t *target, weir_queue_t *queue)
{
    weir_error_t error;
    weir_info_t info = weir_info_init();
    weir_queue_info_t queue_info = weir_queue_info_init();
    char block[16];
    CHECK(weir_close(NULL) == WEIR_OK && weir_queue_destroy(NULL) == WEIR_OK);
    CHECK(weir_info(NULL, &info) == WEIR_EUSAGE && weir_info(target, NULL) == WEIR_EUSAGE);
    CHECK(!weir_queue_create(NULL, NULL, &error) && error.code == WEIR_EUSAGE);
    CHECK(weir_queue_info(NULL, &queue_info) == WEIR_EUSAGE && weir_queue_info(queue, NULL) == WEIR_EUSAGE);
    CHECK(weir_queue_error(NULL, &error) == WEIR_EUSAGE && weir_queue_error(queue, NULL) == WEIR_OK);
    CHECK(!weir_buffer_alloc(NULL) && weir_buffer_free(NULL, block) == WEIR_EUSAGE);
    CHECK(weir_buffer_free(queue, NULL) == WEIR_OK && weir_buffer_free(queue, block) == WEIR_EUSAGE);
    CHECK(weir_read(NULL, block, 0, BLOCK, NULL, NULL) == WEIR_EUSAGE);
    CHECK(weir_read(queue, NULL, 0, BLOCK, NULL, NULL) == WEIR_EUSAGE);
    CHECK(weir_write(queue, NULL, 0, BLOCK, NULL, NULL) == WEIR_EUSAGE);
    CHECK(weir_trim(NULL, 0, BLOCK, NULL, NULL) == WEIR_EUSAGE && weir_flush(NULL, NULL, NULL) == WEIR_EUSAGE);
    CHECK(weir_write_zeroes(NULL, 0, BLOCK, NULL, NULL) == WEIR_EUSAGE);
    CHECK(weir_poll(NULL, NULL, 1) == WEIR_EUSAGE && weir_poll(queue, NULL, 0) == 0);
    weir_queue_opts_t opts = weir_queue_opts_init();
    opts.io_class = 6;
    CHECK(!weir_queue_create(target, &opts, &error) && error.code == WEIR_EUSAGE && strstr(error.message, "class"));
}

static void ranges_are_checked(weir_t *target, weir_queue_t *queue)
{
    weir_info_t info = weir_info_init();
    weir_queue_info_t q = weir_queue_info_init();
    CHECK(weir_info(target, &info) == WEIR_OK && weir_queue_info(queue, &q) == WEIR_OK);
    CHECK(BLOCK % info.block_size == 0 && q.max_io == 64 * 1024 && q.depth == 8 && q.in_flight == 0);
    unsigned char *bytes = malloc(q.max_io + BLOCK);
    uint64_t end = info.capacity;
    CHECK(weir_read(queue, bytes, end, BLOCK, NULL, NULL) == WEIR_ERANGE);
    CHECK(weir_read(queue, bytes, end - info.block_size, 2 * info.block_size, NULL, NULL) == WEIR_ERANGE);
    CHECK(weir_read(queue, bytes, UINT64_MAX - BLOCK + 1, BLOCK, NULL, NULL) == WEIR_ERANGE);
    CHECK(weir_read(queue, bytes, 1, BLOCK, NULL, NULL) == WEIR_ERANGE);
    CHECK(weir_read(queue, bytes, 0, BLOCK + 1, NULL, NULL) == WEIR_ERANGE);
    CHECK(weir_read(queue, bytes, 0, 0, NULL, NULL) == WEIR_ERANGE);
    CHECK(weir_write(queue, bytes, 0, q.max_io + BLOCK, NULL, NULL) == WEIR_ERANGE);
    CHECK(weir_trim(queue, end, BLOCK, NULL, NULL) == WEIR_ERANGE);
    one(queue, weir_read(queue, bytes, end - BLOCK, BLOCK, NULL, NULL));
    free(bytes);
}

static void data_comes_back(weir_queue_t *queue)
{
    const uint32_t len = 64 * 1024;
    unsigned char *out = malloc(len), *in = malloc(len), *buffer = weir_buffer_alloc(queue);
    CHECK(out && in && buffer && all_zero(buffer, len));
    fill(out, len, 1);
    one(queue, weir_write(queue, out, BLOCK, len, NULL, NULL));
    one(queue, weir_read(queue, in, BLOCK, len, NULL, NULL));
    CHECK(memcmp(in, out, len) == 0);
    /* The same through a buffer of the queue: forth and back, and half of it. */
    one(queue, weir_read(queue, buffer, BLOCK, len, NULL, NULL));
    CHECK(memcmp(buffer, out, len) == 0);
    fill(buffer, len, 2);
    one(queue, weir_write(queue, buffer, 0, len, NULL, NULL));
    one(queue, weir_read(queue, in, 0, len, NULL, NULL));
    CHECK(memcmp(in, buffer, len) == 0);
    /* From the middle of the buffer it is memory like any other. */
    one(queue, weir_write(queue, buffer + BLOCK, 0, BLOCK, NULL, NULL));
    one(queue, weir_read(queue, in, 0, BLOCK, NULL, NULL));
    CHECK(memcmp(in, buffer + BLOCK, BLOCK) == 0);
    one(queue, weir_write_zeroes(queue, BLOCK, BLOCK, NULL, NULL));
    one(queue, weir_read(queue, in, 0, 3 * BLOCK, NULL, NULL));
    CHECK(all_zero(in + BLOCK, BLOCK) && memcmp(in + 2 * BLOCK, buffer + 2 * BLOCK, BLOCK) == 0);
    one(queue, weir_trim(queue, 0, len, NULL, NULL));
    one(queue, weir_flush(queue, NULL, NULL));
    CHECK(weir_buffer_free(queue, buffer) == WEIR_OK && weir_buffer_free(queue, buffer) == WEIR_EUSAGE);
    free(out);
    free(in);
}

static void the_queue_fills(weir_queue_t *queue)
{
    unsigned char blocks[9][BLOCK];
    weir_completion_t ended[9];
    int seen[8] = {0};
    for (int i = 0; i < 8; i++)
        CHECK(weir_read(queue, blocks[i], (uint64_t)i * BLOCK, BLOCK, NULL, &seen[i]) == WEIR_OK);
    CHECK(weir_read(queue, blocks[8], 0, BLOCK, NULL, NULL) == WEIR_EAGAIN);
    CHECK(weir_flush(queue, NULL, NULL) == WEIR_EAGAIN);
    weir_queue_info_t q = weir_queue_info_init();
    CHECK(weir_queue_info(queue, &q) == WEIR_OK && q.in_flight == 8);
    wait_for(queue, ended, 8);
    for (int i = 0; i < 8; i++) {
        CHECK(ended[i].result == WEIR_OK);
        (*(int *)ended[i].user)++;
    }
    for (int i = 0; i < 8; i++)
        CHECK(seen[i] == 1);
    CHECK(weir_poll(queue, ended, 8) == 0);
    /* As many buffers as the depth, and then still a flush. */
    void *buffers[9];
    for (int i = 0; i < 8; i++) {
        buffers[i] = weir_buffer_alloc(queue);
        CHECK(buffers[i] && (uintptr_t)buffers[i] % 16 == 0);
    }
    CHECK(!weir_buffer_alloc(queue));
    one(queue, weir_flush(queue, NULL, NULL));
    CHECK(weir_read(queue, buffers[0], 0, BLOCK, NULL, NULL) == WEIR_OK);
    CHECK(weir_buffer_free(queue, buffers[0]) == WEIR_EBUSY);
    wait_for(queue, ended, 1);
    for (int i = 0; i < 8; i++)
        CHECK(weir_buffer_free(queue, buffers[i]) == WEIR_OK);
}

struct chain {
    weir_queue_t *queue;
    unsigned char block[BLOCK];
    int left, calls;
};

static void again(void *user, int result, uint16_t status)
{
    struct chain *chain = user;
    CHECK(result == WEIR_OK && status == 0);
    chain->calls++;
    CHECK(weir_poll(chain->queue, NULL, 1) == WEIR_EBUSY);
    CHECK(weir_queue_destroy(chain->queue) == WEIR_EBUSY);
    if (--chain->left > 0)
        CHECK(weir_read(chain->queue, chain->block, 0, BLOCK, again, chain) == WEIR_OK);
}

static void callbacks_may_submit(weir_queue_t *queue)
{
    struct chain chain = {.queue = queue, .left = 50};
    weir_completion_t ended[2] = {{0}};
    CHECK(weir_read(queue, chain.block, 0, BLOCK, again, &chain) == WEIR_OK);
    int polls = 0, total = 0;
    while (chain.left > 0) {
        int got = weir_poll(queue, ended, 2);
        CHECK(got >= 0);
        if (got > 0)
            CHECK(ended[0].user == &chain);
        total += got;
        polls++;
    }
    CHECK(chain.calls == 50 && total == 50 && polls >= 50);
}

static void *elsewhere(void *queue)
{
    return (void *)(intptr_t)weir_poll(queue, NULL, 1);
}

static void threads(weir_t *target, weir_queue_t *queue)
{
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, elsewhere, queue) == 0 && pthread_join(thread, &result) == 0);
    CHECK((intptr_t)result == (is_local() ? WEIR_EUSAGE : 0));
    (void)target;
}

/* ioprio_set(IOPRIO_WHO_PROCESS, this thread, class, level 4). */
static void nice_me(int io_class)
{
    CHECK(syscall(SYS_ioprio_set, 1, 0, io_class << 13 | (io_class == 0 ? 0 : 4)) == 0);
}

static uint32_t class_of(weir_t *target, uint32_t wanted)
{
    weir_error_t error;
    weir_queue_opts_t opts = weir_queue_opts_init();
    weir_queue_info_t info = weir_queue_info_init();
    opts.io_class = wanted;
    weir_queue_t *queue = weir_queue_create(target, &opts, &error);
    if (!queue)
        fprintf(stderr, "%s\n", error.message);
    CHECK(queue && weir_queue_info(queue, &info) == WEIR_OK);
    unsigned char block[BLOCK];
    one(queue, weir_read(queue, block, 0, BLOCK, NULL, NULL));
    CHECK(weir_queue_destroy(queue) == WEIR_OK);
    return info.io_class;
}

static void classes(weir_t *target)
{
    CHECK(class_of(target, WEIR_CLASS_THREAD) == WEIR_CLASS_TENANT);
    nice_me(2);
    CHECK(class_of(target, WEIR_CLASS_THREAD) == WEIR_CLASS_MEDIUM);
    nice_me(3);
    CHECK(class_of(target, WEIR_CLASS_THREAD) == WEIR_CLASS_LOW);
    CHECK(class_of(target, WEIR_CLASS_TENANT) == WEIR_CLASS_TENANT);
    CHECK(class_of(target, WEIR_CLASS_HIGH) == WEIR_CLASS_HIGH);
    if (geteuid() == 0) {
        nice_me(1);
        CHECK(class_of(target, WEIR_CLASS_THREAD) == WEIR_CLASS_HIGH);
    }
    nice_me(0);
}

/* Many queues one after another, more than a controller has. */
static void queues_come_and_go(weir_t *target)
{
    for (int i = 0; i < 40; i++) {
        weir_queue_t *queue = create(target);
        unsigned char block[BLOCK];
        one(queue, weir_read(queue, block, 0, BLOCK, NULL, NULL));
        CHECK(weir_queue_destroy(queue) == WEIR_OK);
    }
    /* One that is destroyed with requests in flight. */
    weir_queue_t *queue = create(target);
    unsigned char *buffer = weir_buffer_alloc(queue);
    CHECK(weir_read(queue, buffer, 0, BLOCK, NULL, NULL) == WEIR_OK && weir_poll(queue, NULL, 0) == 0);
    CHECK(weir_read(queue, buffer, 0, BLOCK, NULL, NULL) == WEIR_OK);
    CHECK(weir_queue_destroy(queue) == WEIR_OK);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: api URL | api --layout\n");
        return 2;
    }
    if (strcmp(argv[1], "--layout") == 0) {
#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
        SIZE(weir_error_t), FIELD(weir_error_t, message);
        SIZE(weir_opts_t), FIELD(weir_opts_t, hostnqn), FIELD(weir_opts_t, queues), FIELD(weir_opts_t, depth);
        FIELD(weir_opts_t, max_io), FIELD(weir_opts_t, keep_alive_ms), FIELD(weir_opts_t, flags), FIELD(weir_opts_t, reserved);
        SIZE(weir_queue_opts_t), FIELD(weir_queue_opts_t, io_class), FIELD(weir_queue_opts_t, reserved);
        SIZE(weir_info_t), FIELD(weir_info_t, capacity), FIELD(weir_info_t, block_size), FIELD(weir_info_t, nsid);
        FIELD(weir_info_t, queues), FIELD(weir_info_t, transport);
        SIZE(weir_queue_info_t), FIELD(weir_queue_info_t, depth), FIELD(weir_queue_info_t, max_io);
        FIELD(weir_queue_info_t, io_class), FIELD(weir_queue_info_t, in_flight), FIELD(weir_queue_info_t, buffers);
        SIZE(weir_completion_t), FIELD(weir_completion_t, user), FIELD(weir_completion_t, result), FIELD(weir_completion_t, status);
        return 0;
    }
    url = argv[1];
    about_the_library();
    refusals_of_open();
    sizes_of_options();
    weir_t *target = open_target(8);
    weir_queue_t *queue = create(target);
    null_is_refused(target, queue);
    ranges_are_checked(target, queue);
    data_comes_back(queue);
    the_queue_fills(queue);
    callbacks_may_submit(queue);
    threads(target, queue);
    classes(target);
    queues_come_and_go(target);
    /* The queue goes on without the handle of its target. */
    CHECK(weir_close(target) == WEIR_OK);
    one(queue, weir_flush(queue, NULL, NULL));
    CHECK(weir_queue_destroy(queue) == WEIR_OK);
    puts("everything holds");
    return 0;
}
