/*
 * What SPDK's public interface looks like to a compiler, as far as the preload library touches it: types, sizes and places of
 * fields, as stated by include/spdk/nvme.h and include/spdk/nvmf_spec.h of the releases in SPDK_RELEASES, x86-64 and arm64.
 * Nothing but these facts comes from there.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef WEIR_SPDK_ABI_H
#define WEIR_SPDK_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(soname of libspdk_nvme, release, bytes of struct spdk_nvme_ctrlr_opts, bytes of struct spdk_nvme_io_qpair_opts): SO_VER and
 * SO_MINOR of lib/nvme/Makefile, and the sizes that the header asserts. */
#define SPDK_RELEASES(X) \
    X("libspdk_nvme.so.12.0", "v24.01", 824, 72) \
    X("libspdk_nvme.so.13.0", "v24.05", 856, 72) \
    X("libspdk_nvme.so.14.0", "v24.09", 856, 72) \
    X("libspdk_nvme.so.15.0", "v25.05", 856, 80) \
    X("libspdk_nvme.so.16.0", "v25.09", 856, 80) \
    X("libspdk_nvme.so.17.0", "v26.01", 856, 80) \
    X("libspdk_nvme.so.18.0", "v26.05", 856, 80)

/* CC.AMS (NVMe base 2.0, 3.1.3.5) and CAP.AMS (3.1.3.1), as SPDK passes them on. */
enum { SPDK_AMS_RR = 0, SPDK_AMS_WRR = 1, SPDK_AMS_VENDOR = 7 };
/* QPRIO (NVMe base 2.0, 5.5). */
enum { SPDK_QPRIO_URGENT = 0, SPDK_QPRIO_HIGH = 1, SPDK_QPRIO_MEDIUM = 2, SPDK_QPRIO_LOW = 3 };

/* The newest layout of the options of a controller; older releases end earlier. */
struct spdk_nvme_ctrlr_opts {
    uint32_t num_io_queues;
    uint8_t before_arbitration[4];
    int32_t arb_mechanism;
    uint8_t weights[4];
    uint32_t keep_alive_timeout_ms;
    uint8_t retries[4];
    uint32_t io_queue_size;
    char hostnqn[224];
    uint8_t addresses_to_queue_size[592 - 252];
    size_t opts_size;
    uint8_t rest[856 - 600];
};

_Static_assert(offsetof(struct spdk_nvme_ctrlr_opts, arb_mechanism) == 8, "arb_mechanism");
_Static_assert(offsetof(struct spdk_nvme_ctrlr_opts, keep_alive_timeout_ms) == 16, "keep_alive_timeout_ms");
_Static_assert(offsetof(struct spdk_nvme_ctrlr_opts, hostnqn) == 28, "hostnqn");
_Static_assert(offsetof(struct spdk_nvme_ctrlr_opts, opts_size) == 592, "opts_size");
_Static_assert(sizeof(struct spdk_nvme_ctrlr_opts) == 856, "struct spdk_nvme_ctrlr_opts");

/* The newest layout of the options of a queue pair. */
struct spdk_nvme_io_qpair_opts {
    int32_t qprio;
    uint32_t io_queue_size;
    uint32_t io_queue_requests;
    uint8_t flags[4];
    uint8_t memory[48];
    uint8_t modes[8];
    size_t opts_size;
};

_Static_assert(offsetof(struct spdk_nvme_io_qpair_opts, qprio) == 0, "qprio");
_Static_assert(offsetof(struct spdk_nvme_io_qpair_opts, io_queue_size) == 4, "io_queue_size");
_Static_assert(offsetof(struct spdk_nvme_io_qpair_opts, opts_size) == 72, "opts_size");
_Static_assert(sizeof(struct spdk_nvme_io_qpair_opts) == 80, "struct spdk_nvme_io_qpair_opts");

/* Where a controller is. */
struct spdk_nvme_transport_id {
    char trstring[33];
    int32_t trtype;
    int32_t adrfam;
    char traddr[257];
    char trsvcid[33];
    char subnqn[224];
    int32_t priority;
};

_Static_assert(offsetof(struct spdk_nvme_transport_id, trtype) == 36, "trtype");
_Static_assert(offsetof(struct spdk_nvme_transport_id, traddr) == 44, "traddr");
_Static_assert(offsetof(struct spdk_nvme_transport_id, trsvcid) == 301, "trsvcid");
_Static_assert(offsetof(struct spdk_nvme_transport_id, subnqn) == 334, "subnqn");
_Static_assert(sizeof(struct spdk_nvme_transport_id) == 564, "struct spdk_nvme_transport_id");

struct spdk_nvme_ctrlr;
struct spdk_nvme_qpair;
struct spdk_nvme_probe_ctx;
struct spdk_nvme_detach_ctx;

typedef bool (*spdk_nvme_probe_cb)(void *, const struct spdk_nvme_transport_id *, struct spdk_nvme_ctrlr_opts *);
typedef void (*spdk_nvme_attach_cb)(void *, const struct spdk_nvme_transport_id *, struct spdk_nvme_ctrlr *,
                                    const struct spdk_nvme_ctrlr_opts *);
typedef void (*spdk_nvme_attach_fail_cb)(void *, const struct spdk_nvme_transport_id *, int);
typedef void (*spdk_nvme_remove_cb)(void *, struct spdk_nvme_ctrlr *);

/* X(result, name, parameters): what is taken in between, and what it is done with. */
#define SPDK_FUNCTIONS(X) \
    X(int, spdk_nvme_probe, \
      (const struct spdk_nvme_transport_id *, void *, spdk_nvme_probe_cb, spdk_nvme_attach_cb, spdk_nvme_remove_cb)) \
    X(int, spdk_nvme_probe_ext, \
      (const struct spdk_nvme_transport_id *, void *, spdk_nvme_probe_cb, spdk_nvme_attach_cb, spdk_nvme_attach_fail_cb, \
       spdk_nvme_remove_cb)) \
    X(struct spdk_nvme_probe_ctx *, spdk_nvme_probe_async, \
      (const struct spdk_nvme_transport_id *, void *, spdk_nvme_probe_cb, spdk_nvme_attach_cb, spdk_nvme_remove_cb)) \
    X(struct spdk_nvme_probe_ctx *, spdk_nvme_probe_async_ext, \
      (const struct spdk_nvme_transport_id *, void *, spdk_nvme_probe_cb, spdk_nvme_attach_cb, spdk_nvme_attach_fail_cb, \
       spdk_nvme_remove_cb)) \
    X(int, spdk_nvme_probe_poll_async, (struct spdk_nvme_probe_ctx *)) \
    X(struct spdk_nvme_ctrlr *, spdk_nvme_connect, \
      (const struct spdk_nvme_transport_id *, const struct spdk_nvme_ctrlr_opts *, size_t)) \
    X(struct spdk_nvme_probe_ctx *, spdk_nvme_connect_async, \
      (const struct spdk_nvme_transport_id *, const struct spdk_nvme_ctrlr_opts *, spdk_nvme_attach_cb)) \
    X(int, spdk_nvme_detach, (struct spdk_nvme_ctrlr *)) \
    X(int, spdk_nvme_detach_async, (struct spdk_nvme_ctrlr *, struct spdk_nvme_detach_ctx **)) \
    X(struct spdk_nvme_qpair *, spdk_nvme_ctrlr_alloc_io_qpair, \
      (struct spdk_nvme_ctrlr *, const struct spdk_nvme_io_qpair_opts *, size_t)) \
    X(void, spdk_nvme_ctrlr_get_default_ctrlr_opts, (struct spdk_nvme_ctrlr_opts *, size_t)) \
    X(void, spdk_nvme_ctrlr_get_default_io_qpair_opts, \
      (struct spdk_nvme_ctrlr *, struct spdk_nvme_io_qpair_opts *, size_t)) \
    X(const struct spdk_nvme_ctrlr_opts *, spdk_nvme_ctrlr_get_opts, (struct spdk_nvme_ctrlr *))

#endif
