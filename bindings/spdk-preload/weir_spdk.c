/*
 * libweir-spdk.so: queue priorities for unmodified programs that link SPDK dynamically.
 *
 *     LD_PRELOAD=libweir-spdk.so ionice -c2 ./program
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * It stands between the program and libspdk_nvme.so and does two things:
 *   - a controller that is attached with round robin is asked for weighted round robin instead. Where it has none (CAP.AMS),
 *     SPDK refuses to enable it, and it is attached once more just as the program wanted it;
 *   - a queue pair on a controller with arbitration gets QPRIO from the I/O priority of the thread that allocates it: ionice
 *     class 1 is high, 2 is medium, 3 is low. A thread that nobody niced: as the program says, and medium where the program
 *     cannot have meant anything, because it asked for round robin.
 *
 *     program ──► spdk_nvme_probe, _connect, … (here) ──► the same in libspdk_nvme.so
 *                      ▲  on_probe, on_attach, on_fail ◄────────┘      its callbacks, with this thread's session
 *                      └── the program's callbacks
 *
 * SPDK's functions call one another by their public names, and so come through here: while a session is open in a thread,
 * what comes is SPDK's own and passes.
 *
 * docs/guides/spdk.md says which releases it knows and which variables of the environment it reads. With any other release it changes
 * nothing and says so.
 */
#define _GNU_SOURCE
#include "spdk_abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct release {
    const char *soname, *name;
    size_t ctrlr_opts, qpair_opts;
};

static const struct release releases[] = {
#define RELEASE(soname, name, ctrlr, qpair) {soname, name, ctrlr, qpair},
    SPDK_RELEASES(RELEASE)
#undef RELEASE
};

/* SPDK's own functions; null where the release has none. */
static struct {
#define POINTER(result, name, parameters) result(*name) parameters;
    SPDK_FUNCTIONS(POINTER)
#undef POINTER
} spdk;

static const struct release *release; /* null: nothing is changed */
static int wanted = SPDK_AMS_WRR;
static bool urgent_allowed, verbose;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "libweir-spdk: %s\n", text);
}

/* ---- which SPDK this is ---- */

static int find_library(struct dl_phdr_info *info, size_t size, void *path)
{
    (void)size;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    if (strncmp(name, "libspdk_nvme.so", strlen("libspdk_nvme.so")) != 0)
        return 0;
    snprintf(path, 4096, "%s", info->dlpi_name);
    return 1;
}

/* DT_SONAME of a library that is loaded. */
static const char *soname_of(void *library)
{
    struct link_map *map;
    const char *strings = NULL;
    size_t at = 0;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB)
            strings = (const char *)entry->d_un.d_ptr;
        else if (entry->d_tag == DT_SONAME)
            at = entry->d_un.d_val;
    }
    return strings && at ? strings + at : NULL;
}

static void read_environment(void)
{
    const char *arbitration = getenv("WEIR_SPDK_ARBITRATION"), *urgent = getenv("WEIR_SPDK_URGENT");
    const char *chatty = getenv("WEIR_SPDK_VERBOSE");
    urgent_allowed = urgent && strcmp(urgent, "1") == 0;
    verbose = chatty && strcmp(chatty, "1") == 0;
    if (!arbitration || strcmp(arbitration, "wrr") == 0)
        wanted = SPDK_AMS_WRR;
    else if (strcmp(arbitration, "drr") == 0)
        wanted = SPDK_AMS_VENDOR;
    else {
        wanted = SPDK_AMS_RR;
        if (strcmp(arbitration, "off") != 0)
            say("WEIR_SPDK_ARBITRATION=%s: it is wrr, drr or off; taken as off", arbitration);
    }
}

static void choose_release(const char *soname)
{
    char known[512] = "";
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        if (soname && strcmp(soname, releases[i].soname) == 0)
            release = &releases[i];
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s (%s)", len ? ", " : "", releases[i].name, releases[i].soname);
    }
    if (!release)
        say("this program uses %s, whose layouts are not known; nothing is changed. Known: %s",
            soname ? soname : "a libspdk_nvme without a soname", known);
    else if (verbose)
        say("SPDK %s", release->name);
}

static void set_up(void)
{
    char path[4096] = "";
    dl_iterate_phdr(find_library, path);
    void *library = path[0] ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
#define FIND(result, name, parameters) *(void **)&spdk.name = dlsym(library ? library : RTLD_NEXT, #name);
    SPDK_FUNCTIONS(FIND)
#undef FIND
    read_environment();
    if (library)
        choose_release(soname_of(library));
    else
        say("there is no libspdk_nvme.so in this program (SPDK is linked otherwise); nothing is changed");
}

static bool active(void)
{
    pthread_once(&once, set_up);
    return release != NULL;
}

/* What cannot be handed on: SPDK went away, or never had it. */
static bool missing(const void *function, const char *name)
{
    if (!function)
        say("%s is called, and libspdk_nvme.so has none", name);
    return !function;
}
#define MISSING(name) missing(*(void *const *)&spdk.name, #name)

/* A program that SPDK is loaded with hears at its start if it does not fit; others (a shell, ionice) hear nothing. */
__attribute__((constructor)) static void at_start(void)
{
    char path[4096] = "";
    if (dl_iterate_phdr(find_library, path))
        active();
}

/* ---- controllers whose mechanism was chosen here ---- */

struct chosen {
    struct chosen *next;
    struct spdk_nvme_ctrlr *ctrlr;
};
static struct chosen *chosen;

static void forget(struct spdk_nvme_ctrlr *ctrlr)
{
    pthread_mutex_lock(&lock);
    for (struct chosen **at = &chosen; *at; at = &(*at)->next) {
        if ((*at)->ctrlr == ctrlr) {
            struct chosen *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

static int mechanism(struct spdk_nvme_ctrlr *ctrlr)
{
    const struct spdk_nvme_ctrlr_opts *opts = spdk.spdk_nvme_ctrlr_get_opts ? spdk.spdk_nvme_ctrlr_get_opts(ctrlr) : NULL;
    return opts ? opts->arb_mechanism : SPDK_AMS_RR;
}

static void remember(struct spdk_nvme_ctrlr *ctrlr)
{
    struct chosen *one = malloc(sizeof *one);
    forget(ctrlr);
    if (!one || mechanism(ctrlr) != wanted) {
        free(one);
        return;
    }
    pthread_mutex_lock(&lock);
    *one = (struct chosen){.next = chosen, .ctrlr = ctrlr};
    chosen = one;
    pthread_mutex_unlock(&lock);
}

static bool is_chosen(struct spdk_nvme_ctrlr *ctrlr)
{
    pthread_mutex_lock(&lock);
    const struct chosen *at = chosen;
    while (at && at->ctrlr != ctrlr)
        at = at->next;
    pthread_mutex_unlock(&lock);
    return at != NULL;
}

/* ---- attaching: a session, from the program's call to its end ---- */

/* A controller that the program accepted. */
struct attempt {
    struct attempt *next;
    struct spdk_nvme_transport_id trid;
    bool changed, attached;
    struct spdk_nvme_ctrlr_opts opts; /* as the program left them */
};

struct session {
    struct session *next; /* asynchronous ones */
    bool connects, retries;
    const struct spdk_nvme_transport_id *trid;
    struct spdk_nvme_transport_id trid_copy;
    void *context;
    spdk_nvme_probe_cb probe;
    spdk_nvme_attach_cb attach;
    spdk_nvme_attach_fail_cb fail;
    spdk_nvme_remove_cb remove;
    bool extended; /* by a function that reports failures */
    struct attempt *attempts;
    const struct spdk_nvme_ctrlr_opts *connect_opts; /* the program's, which are also its context */
    struct spdk_nvme_ctrlr_opts opts;
    struct spdk_nvme_probe_ctx *running;
};

/* This thread is inside of SPDK for this session. */
static __thread struct session *current;
static struct session *sessions;

static bool same(const struct spdk_nvme_transport_id *a, const struct spdk_nvme_transport_id *b)
{
    return a->trtype == b->trtype && strcmp(a->traddr, b->traddr) == 0 && strcmp(a->trsvcid, b->trsvcid) == 0 &&
           strcmp(a->subnqn, b->subnqn) == 0;
}

static struct attempt *attempt_at(struct session *session, const struct spdk_nvme_transport_id *trid)
{
    struct attempt *at = session->attempts;
    while (at && !(session->connects || same(&at->trid, trid)))
        at = at->next;
    return at;
}

static struct attempt *add_attempt(struct session *session, const struct spdk_nvme_transport_id *trid)
{
    struct attempt *one = calloc(1, sizeof *one);
    if (one) {
        one->trid = *trid;
        one->next = session->attempts;
        session->attempts = one;
    }
    return one;
}

static bool on_probe(void *context, const struct spdk_nvme_transport_id *trid, struct spdk_nvme_ctrlr_opts *opts)
{
    struct session *session = current;
    struct attempt *attempt = attempt_at(session, trid);
    if (session->retries) {
        if (!attempt || !attempt->changed || attempt->attached)
            return false;
        memcpy(opts, &attempt->opts, release->ctrlr_opts);
        attempt->changed = false;
        return true;
    }
    current = NULL;
    bool accepted = !session->probe || session->probe(context, trid, opts);
    current = session;
    if (!accepted || opts->arb_mechanism != SPDK_AMS_RR || attempt)
        return accepted;
    attempt = add_attempt(session, trid);
    if (attempt) {
        memcpy(&attempt->opts, opts, release->ctrlr_opts);
        attempt->changed = true;
        opts->arb_mechanism = wanted;
    }
    return true;
}

static void on_attach(void *context, const struct spdk_nvme_transport_id *trid, struct spdk_nvme_ctrlr *ctrlr,
                      const struct spdk_nvme_ctrlr_opts *opts)
{
    struct session *session = current;
    struct attempt *attempt = attempt_at(session, trid);
    forget(ctrlr);
    if (attempt) {
        attempt->attached = true;
        if (attempt->changed)
            remember(ctrlr);
    }
    if (verbose)
        say("%s: attached with arbitration mechanism %d", trid->traddr, mechanism(ctrlr));
    current = NULL;
    if (session->attach)
        session->attach(session->connects ? (void *)session->connect_opts : context, trid, ctrlr, opts);
    current = session;
}

static void on_fail(void *context, const struct spdk_nvme_transport_id *trid, int error)
{
    struct session *session = current;
    const struct attempt *attempt = attempt_at(session, trid);
    bool again = attempt && attempt->changed && !session->retries;
    if (again || !session->fail)
        return;
    current = NULL;
    session->fail(context, trid, error);
    current = session;
}

/* Whether to attach once more what did not take the other mechanism. */
static bool retry(struct session *session)
{
    if (session->retries)
        return false;
    for (const struct attempt *at = session->attempts; at; at = at->next) {
        if (at->changed && !at->attached) {
            if (verbose)
                say("%s does not take arbitration mechanism %d; attached as the program wants it", at->trid.traddr, wanted);
            session->retries = true;
        }
    }
    return session->retries;
}

static void clear(struct session *session)
{
    while (session->attempts) {
        struct attempt *gone = session->attempts;
        session->attempts = gone->next;
        free(gone);
    }
}

static bool passes(void)
{
    return !active() || wanted == SPDK_AMS_RR || current != NULL;
}

static int probe_once(struct session *session)
{
    current = session;
    int result = session->extended
                     ? spdk.spdk_nvme_probe_ext(session->trid, session->context, on_probe, on_attach, on_fail, session->remove)
                     : spdk.spdk_nvme_probe(session->trid, session->context, on_probe, on_attach, session->remove);
    current = NULL;
    return result;
}

static int probe(struct session session)
{
    int result = probe_once(&session);
    if (retry(&session))
        result = probe_once(&session);
    clear(&session);
    return result;
}

EXPORT int spdk_nvme_probe(const struct spdk_nvme_transport_id *trid, void *context, spdk_nvme_probe_cb probe_cb,
                           spdk_nvme_attach_cb attach_cb, spdk_nvme_remove_cb remove_cb)
{
    bool as_it_is = passes();
    if (MISSING(spdk_nvme_probe))
        return -ENOSYS;
    if (as_it_is)
        return spdk.spdk_nvme_probe(trid, context, probe_cb, attach_cb, remove_cb);
    return probe((struct session){.trid = trid, .context = context, .probe = probe_cb, .attach = attach_cb, .remove = remove_cb});
}

EXPORT int spdk_nvme_probe_ext(const struct spdk_nvme_transport_id *trid, void *context, spdk_nvme_probe_cb probe_cb,
                               spdk_nvme_attach_cb attach_cb, spdk_nvme_attach_fail_cb fail_cb, spdk_nvme_remove_cb remove_cb)
{
    bool as_it_is = passes();
    if (MISSING(spdk_nvme_probe_ext))
        return -ENOSYS;
    if (as_it_is)
        return spdk.spdk_nvme_probe_ext(trid, context, probe_cb, attach_cb, fail_cb, remove_cb);
    return probe((struct session){.trid = trid,
                                  .context = context,
                                  .probe = probe_cb,
                                  .attach = attach_cb,
                                  .fail = fail_cb,
                                  .remove = remove_cb,
                                  .extended = true});
}

/* The program's options with another mechanism; false where they name one already. */
static bool change(struct spdk_nvme_ctrlr_opts *copy, const struct spdk_nvme_ctrlr_opts *opts, size_t size)
{
    memset(copy, 0, sizeof *copy);
    if (opts)
        memcpy(copy, opts, size < release->ctrlr_opts ? size : release->ctrlr_opts);
    else if (spdk.spdk_nvme_ctrlr_get_default_ctrlr_opts)
        spdk.spdk_nvme_ctrlr_get_default_ctrlr_opts(copy, release->ctrlr_opts);
    else
        return false;
    if (copy->arb_mechanism != SPDK_AMS_RR)
        return false;
    copy->arb_mechanism = wanted;
    return true;
}

EXPORT struct spdk_nvme_ctrlr *spdk_nvme_connect(const struct spdk_nvme_transport_id *trid, const struct spdk_nvme_ctrlr_opts *opts,
                                                 size_t opts_size)
{
    struct spdk_nvme_ctrlr_opts changed;
    struct session session = {.connects = true};
    bool as_it_is = passes();
    if (MISSING(spdk_nvme_connect))
        return NULL;
    size_t reaches = offsetof(struct spdk_nvme_ctrlr_opts, arb_mechanism) + sizeof changed.arb_mechanism;
    if (as_it_is || (opts && opts_size < reaches) || !change(&changed, opts, opts_size))
        return spdk.spdk_nvme_connect(trid, opts, opts_size);
    current = &session;
    struct spdk_nvme_ctrlr *ctrlr = spdk.spdk_nvme_connect(trid, &changed, opts ? opts_size : release->ctrlr_opts);
    if (!ctrlr && verbose)
        say("%s does not take arbitration mechanism %d; attached as the program wants it", trid ? trid->traddr : "?", wanted);
    bool took = ctrlr != NULL;
    if (!took)
        ctrlr = spdk.spdk_nvme_connect(trid, opts, opts_size);
    current = NULL;
    if (ctrlr) {
        forget(ctrlr);
        if (took)
            remember(ctrlr);
        if (verbose)
            say("%s: attached with arbitration mechanism %d", trid->traddr, mechanism(ctrlr));
    }
    return ctrlr;
}

/* Starts what the session is about; it runs when `running` is not null. */
static void start(struct session *session)
{
    current = session;
    if (session->connects) {
        const struct spdk_nvme_ctrlr_opts *opts = session->retries ? session->connect_opts : &session->opts;
        if (session->retries && session->connect_opts) {
            session->opts.arb_mechanism = SPDK_AMS_RR;
            opts = &session->opts;
        }
        session->running = spdk.spdk_nvme_connect_async(session->trid, opts, on_attach);
    } else if (session->extended) {
        session->running = spdk.spdk_nvme_probe_async_ext(session->trid, session->context, on_probe, on_attach, on_fail,
                                                          session->remove);
    } else {
        session->running = spdk.spdk_nvme_probe_async(session->trid, session->context, on_probe, on_attach, session->remove);
    }
    current = NULL;
}

/* Starts a session that goes on in spdk_nvme_probe_poll_async. The program holds it in place of SPDK's own context, which is
 * another one after a retry. */
static struct spdk_nvme_probe_ctx *begin(struct session *session)
{
    start(session);
    if (!session->running && retry(session))
        start(session);
    if (!session->running) {
        clear(session);
        free(session);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    session->next = sessions;
    sessions = session;
    pthread_mutex_unlock(&lock);
    return (struct spdk_nvme_probe_ctx *)session;
}

static struct session *new_session(const struct spdk_nvme_transport_id *trid, void *context)
{
    struct session *session = calloc(1, sizeof *session);
    if (session) {
        if (trid) {
            session->trid_copy = *trid;
            session->trid = &session->trid_copy;
        }
        session->context = context;
    }
    return session;
}

EXPORT struct spdk_nvme_probe_ctx *spdk_nvme_probe_async(const struct spdk_nvme_transport_id *trid, void *context,
                                                         spdk_nvme_probe_cb probe_cb, spdk_nvme_attach_cb attach_cb,
                                                         spdk_nvme_remove_cb remove_cb)
{
    bool as_it_is = passes();
    if (MISSING(spdk_nvme_probe_async))
        return NULL;
    struct session *session = as_it_is ? NULL : new_session(trid, context);
    if (!session)
        return spdk.spdk_nvme_probe_async(trid, context, probe_cb, attach_cb, remove_cb);
    session->probe = probe_cb;
    session->attach = attach_cb;
    session->remove = remove_cb;
    return begin(session);
}

EXPORT struct spdk_nvme_probe_ctx *spdk_nvme_probe_async_ext(const struct spdk_nvme_transport_id *trid, void *context,
                                                             spdk_nvme_probe_cb probe_cb, spdk_nvme_attach_cb attach_cb,
                                                             spdk_nvme_attach_fail_cb fail_cb, spdk_nvme_remove_cb remove_cb)
{
    bool as_it_is = passes();
    if (MISSING(spdk_nvme_probe_async_ext))
        return NULL;
    struct session *session = as_it_is ? NULL : new_session(trid, context);
    if (!session)
        return spdk.spdk_nvme_probe_async_ext(trid, context, probe_cb, attach_cb, fail_cb, remove_cb);
    session->probe = probe_cb;
    session->attach = attach_cb;
    session->fail = fail_cb;
    session->remove = remove_cb;
    session->extended = true;
    return begin(session);
}

EXPORT struct spdk_nvme_probe_ctx *spdk_nvme_connect_async(const struct spdk_nvme_transport_id *trid,
                                                           const struct spdk_nvme_ctrlr_opts *opts, spdk_nvme_attach_cb attach_cb)
{
    bool as_it_is = passes();
    if (MISSING(spdk_nvme_connect_async))
        return NULL;
    struct session *session = as_it_is || !trid ? NULL : new_session(trid, NULL);
    struct attempt *attempt = NULL;
    if (session && change(&session->opts, opts, release->ctrlr_opts))
        attempt = add_attempt(session, trid);
    if (!attempt) {
        free(session);
        return spdk.spdk_nvme_connect_async(trid, opts, attach_cb);
    }
    attempt->changed = true;
    session->connects = true;
    session->connect_opts = opts;
    session->attach = attach_cb;
    return begin(session);
}

static struct session *session_of(struct spdk_nvme_probe_ctx *context)
{
    pthread_mutex_lock(&lock);
    struct session *at = sessions;
    while (at && (struct spdk_nvme_probe_ctx *)at != context)
        at = at->next;
    pthread_mutex_unlock(&lock);
    return at;
}

static void end(struct session *session)
{
    pthread_mutex_lock(&lock);
    for (struct session **at = &sessions; *at; at = &(*at)->next) {
        if (*at == session) {
            *at = session->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    clear(session);
    free(session);
}

EXPORT int spdk_nvme_probe_poll_async(struct spdk_nvme_probe_ctx *context)
{
    active();
    if (MISSING(spdk_nvme_probe_poll_async))
        return -ENOSYS;
    struct session *session = current ? NULL : session_of(context);
    if (!session)
        return spdk.spdk_nvme_probe_poll_async(context);
    current = session;
    int result = spdk.spdk_nvme_probe_poll_async(session->running);
    current = NULL;
    if (result == -EAGAIN)
        return result;
    if (retry(session)) {
        /* A connection's one attempt is what is made now. */
        if (session->connects)
            session->attempts->changed = false;
        start(session);
        if (session->running)
            return -EAGAIN;
    }
    end(session);
    return result;
}

EXPORT int spdk_nvme_detach(struct spdk_nvme_ctrlr *ctrlr)
{
    active();
    if (MISSING(spdk_nvme_detach))
        return -ENOSYS;
    forget(ctrlr);
    return spdk.spdk_nvme_detach(ctrlr);
}

EXPORT int spdk_nvme_detach_async(struct spdk_nvme_ctrlr *ctrlr, struct spdk_nvme_detach_ctx **context)
{
    active();
    if (MISSING(spdk_nvme_detach_async))
        return -ENOSYS;
    forget(ctrlr);
    return spdk.spdk_nvme_detach_async(ctrlr, context);
}

/* ---- queue pairs ---- */

/* The I/O priority class of the calling thread: 0 to 3. */
static int ionice_class(void)
{
    enum { WHO_PROCESS = 1, THIS_THREAD = 0 };
    long priority = syscall(SYS_ioprio_get, WHO_PROCESS, THIS_THREAD);
    int io_class = priority < 0 ? 0 : (int)(priority >> 13 & 7);
    return io_class <= 3 ? io_class : 0;
}

static int priority_of_this_thread(struct spdk_nvme_ctrlr *ctrlr, int program)
{
    int io_class = ionice_class();
    if (io_class != 0)
        return io_class; /* 1, 2, 3 are also high, medium and low in QPRIO */
    if (urgent_allowed)
        return SPDK_QPRIO_URGENT;
    /* A program that asked for round robin must leave QPRIO at 0: that is no wish for urgent. */
    return is_chosen(ctrlr) && program == SPDK_QPRIO_URGENT ? SPDK_QPRIO_MEDIUM : program;
}

EXPORT struct spdk_nvme_qpair *spdk_nvme_ctrlr_alloc_io_qpair(struct spdk_nvme_ctrlr *ctrlr,
                                                              const struct spdk_nvme_io_qpair_opts *opts, size_t opts_size)
{
    struct spdk_nvme_io_qpair_opts changed;
    bool known = active();
    if (MISSING(spdk_nvme_ctrlr_alloc_io_qpair))
        return NULL;
    bool reaches = !opts || opts_size >= sizeof changed.qprio;
    if (!known || !ctrlr || !reaches || wanted == SPDK_AMS_RR || mechanism(ctrlr) == SPDK_AMS_RR ||
        !spdk.spdk_nvme_ctrlr_get_default_io_qpair_opts)
        return spdk.spdk_nvme_ctrlr_alloc_io_qpair(ctrlr, opts, opts_size);
    size_t size = release->qpair_opts;
    memset(&changed, 0, sizeof changed);
    if (opts) {
        size = opts_size < size ? opts_size : size;
        memcpy(&changed, opts, size);
    } else {
        spdk.spdk_nvme_ctrlr_get_default_io_qpair_opts(ctrlr, &changed, size);
    }
    changed.qprio = priority_of_this_thread(ctrlr, changed.qprio);
    if (verbose)
        say("queue pair of priority %d", changed.qprio);
    return spdk.spdk_nvme_ctrlr_alloc_io_qpair(ctrlr, &changed, size);
}
