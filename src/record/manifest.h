/* SPDX-License-Identifier: MIT */
/* What manifest.json says; the keys are documented in docs/format.md. */
#ifndef CT_RECORD_MANIFEST_H
#define CT_RECORD_MANIFEST_H

#include "drain/drain.h"
#include "plan/cache.h"
#include "record/costs.h"
#include <contrail/session.h>

#include <jansson.h>
#include <sys/types.h>

struct ct_modules;

struct ct_manifest {
  json_t *command;
  json_t *images;
  uint32_t max_depth;                   /* 0: any */
  json_t *exclude;                      /* the patterns, and whether the built-in list was used */
  const struct ct_selection *selection; /* NULL: everything */
  pid_t pid;
  uint64_t start_wall_ns;
  uint64_t tsc0, ns0; /* a pair of clock readings at the start */
  uint64_t start_boot_ns;
  uint64_t end_ns, end_wall_ns, end_boot_ns;
  uint64_t end_tsc; /* no calls are recorded after this reading; 0: they still are */
  json_t *changes;  /* NULL: none */
  json_t *notes;    /* likewise */
  bool attached, detached;
  bool children_missed; /* it had children, which are not in the trace */
  const char *born;     /* of a followed child: "fork", "vfork"; NULL: it is none */
  pid_t parent;
  bool has_end;
  int has_exit;
  int wait_status;
  uint64_t user_ns,
      system_ns; /* processor time of the program that was started, and of the children it has waited for */
  const struct ct_cache *cache; /* of plans, NULL: none */
  uint64_t private_bytes;       /* of the program when last looked at, 0: never */
  struct ct_hook_costs costs;   /* what its hooks take */
  uint64_t install_ns;          /* how long the program was stopped for installation, all together */
};

void ct_manifest_start(struct ct_manifest *manifest, const struct ct_session_options *options, char *const argv[],
                       pid_t pid);
/* The same of a process that ran before. */
void ct_manifest_attach(struct ct_manifest *manifest, const struct ct_session_options *options, pid_t pid);
/* What is traced was changed: "trace", "untrace", "exclude" or "include" a pattern; so many functions are hooked now.
 */
void ct_manifest_change(struct ct_manifest *manifest, const char *what, const char *pattern, size_t hooked,
                        uint64_t pause_ns);
/* What is excluded now. */
void ct_manifest_exclude(struct ct_manifest *manifest, const struct ct_exclude *exclude);
/* Its command is what /proc/PID/cmdline says now. */
void ct_manifest_command(struct ct_manifest *manifest, pid_t pid);
/* From now on no calls are recorded: the process has ended, or is stopped for the detach. The first one counts. */
void ct_manifest_stop(struct ct_manifest *manifest);
/* It was detached. */
void ct_manifest_detach(struct ct_manifest *manifest);
/* Another process image; why_not: it is not recorded, and the reason (NULL: it is). */
void ct_manifest_image(struct ct_manifest *manifest, pid_t pid, const char *path, const char *why_not);
/* It has ended; known: with that status. */
void ct_manifest_end(struct ct_manifest *manifest, bool known, int wait_status);
/* The "modules" of the manifest. */
json_t *ct_manifest_modules(const struct ct_modules *modules);
/* The whole manifest; takes modules over. */
json_t *ct_manifest_json(const struct ct_manifest *manifest, json_t *modules,
                         const struct ct_drain_thread_info *threads, size_t thread_count,
                         const struct ct_drain_stats *stats, int complete);
void ct_manifest_free(struct ct_manifest *manifest);

/* Of one thread, and of the analysis of files. */
json_t *ct_manifest_thread(const struct ct_drain_thread_info *info);
json_t *ct_manifest_analysis(const struct ct_manifest *manifest);
/* The "detail" of the manifest: what became of records, and what one holds. */
json_t *ct_manifest_detail(const struct ct_drain *drain, struct ct_detail_form form, bool is_marked);
/* The "output" of the manifest. */
json_t *ct_manifest_output(const struct ct_drain *drain);
/* The "switches" of the manifest: where it is known from when threads were off the processor. */
/* "lanes": how full the ring was, and how long blocks took to their files. */
json_t *ct_manifest_lanes(const struct ct_drain *drain, const struct ct_trace_writer *writer);
json_t *ct_manifest_switches(const struct ct_drain *drain);
/* Nanoseconds that a tick of the clock takes, as seen since the start. */
double ct_manifest_tick_ns(const struct ct_manifest *manifest);

/* The "sampling" of the manifest. */
json_t *ct_manifest_sampling(const struct ct_drain *drain);

#endif
