/* SPDX-License-Identifier: MIT */
/* The trace of a session, and the images of its process in it; see session_internal.h. */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/cost.h"
#include "record/program.h"
#include "trace/detail.h"
#include "trace/format.h"
#include "trace/pieces.h"
#include "trace/store.h"
#include "trace/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (48u << 20) /* what the encoders may hold */
#define CHILD_BYTES  (12u << 20) /* the same of a followed child */
#define CHILD_STORE  4           /* a child's store, or its files, are so many times smaller */
#define MANIFEST_NS  200000000ull

/* The counts in the manifest of a running recording, which recover needs: not older than so, or than this part of the
 * recording; and this share of a processor, at most, is taken for writing them, or this part of a budget. */
#define COUNTS_MIN_NS 1000000000ull
#define COUNTS_MAX_NS 30000000000ull
#define COUNTS_PART   8
#define COUNTS_SHARE  100
#define COUNTS_BUDGET 50

/* Detail is written around marks only. */
static bool
session_marks_detail(const struct ct_session *session)
{
  const struct ct_session_options *options = &session->options;
  return options->rule_count != 0 && !options->detail_always && !session->node.is_child;
}

/* Of this process's files. */
static uint64_t
session_max_bytes(const struct ct_session *session)
{
  uint64_t bytes = session->options.max_bytes;
  if (session->node.is_child) {
    bytes = bytes / CHILD_STORE > CT_PIECES_LIMIT_MIN ? bytes / CHILD_STORE : CT_PIECES_LIMIT_MIN;
  }
  return bytes;
}

json_t *
session_manifest(struct ct_session *session, const struct ct_manifest *manifest, bool complete)
{
  const struct ct_drain_thread_info *threads;
  struct ct_drain_stats stats;
  size_t count = ct_drain_threads(session->recording.drain, &threads);
  ct_drain_stats(session->recording.drain, &stats);
  ct_plans_lock(session->recording.modules.plans); /* what patterns have matched */
  json_t *json =
      ct_manifest_json(manifest, ct_manifest_modules(&session->recording.modules), threads, count, &stats, complete);
  ct_plans_unlock(session->recording.modules.plans);
  if (session->options.max_bytes != 0) { /* the rest is added when all is written */
    json_object_set_new(json, "version", json_integer(CT_TRACE_VERSION_PIECES));
    json_object_set_new(json, "kept",
                        json_pack("{s:I, s:I, s:I}", "limit_bytes", (json_int_t)session_max_bytes(session),
                                  "threads_gone", (json_int_t)stats.retired.threads, "threads_gone_events",
                                  (json_int_t)stats.retired.events));
  }
  if (session->options.last_bytes != 0) { /* as long as that is not in the files */
    json_object_set_new(
        json, "kept",
        json_pack("{s:I, s:s, s:I, s:I}", "limit_bytes", (json_int_t)session->options.last_bytes, "memory",
                  ct_trace_writer_keep_of(session->recording.writer, session->recording.manifest.pid), "threads_gone",
                  (json_int_t)stats.retired.threads, "threads_gone_events", (json_int_t)stats.retired.events));
  }
  session_read_cpu(session);
  struct ct_cost cost = session_cost(session, stats.hook_events, stats.dropped_by);
  json_object_set_new(json, "cost", ct_cost_json(&cost));
  json_t *budget = session_budget_json(session, complete);
  if (budget != NULL) {
    json_object_set_new(json, "budget", budget);
  }
  json_object_set_new(json, "sampling", ct_manifest_sampling(session->recording.drain));
  json_object_set_new(json, "output", ct_manifest_output(session->recording.drain));
  if (ct_select_has_lane(session->options.selection)) {
    json_object_set_new(json, "detail",
                        ct_manifest_detail(session->recording.drain, session_image_options(session).detail,
                                           session_marks_detail(session)));
  }
  json_object_set_new(json, "lanes", ct_manifest_lanes(session->recording.drain, session->recording.writer));
  session_put_windows(session, json);
  json_t *itrace = session_itrace_json(session);
  if (itrace != NULL) {
    json_object_set_new(json, "itrace", itrace);
  }
  json_object_set_new(json, "switches", ct_manifest_switches(session->recording.drain));
  if (session->node.tree != NULL && !session->node.is_child) {
    tree_put(session->node.tree, json);
  }
  return json;
}

void
session_write_manifest(struct ct_session *session, bool complete)
{
  session->recording.manifest_events = session->sync.status.events; /* only this thread changes it */
  pthread_mutex_lock(&session->recording.writer_lock);
  /* From here on others wait for us. Not the time that a busy machine makes of it: the counts would grow old there. */
  uint64_t begin = ct_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  if (complete) {
    ct_trace_writer_end_detail(session->recording.writer);
    ct_trace_writer_sync(session->recording.writer); /* so that the counts are of what is on the disk */
    ct_drain_retire_threads(session->recording.drain);
  }
  json_t *json = session_manifest(session, &session->recording.manifest, complete);
  ct_trace_writer_manifest(session->recording.writer, json);
  json_decref(json);
  pthread_mutex_unlock(&session->recording.writer_lock);
  session->recording.manifest_is_old = false;
  session->recording.manifest_modules = session->recording.modules.count; /* only this thread changes it */
  session->recording.manifest_ns = ct_now_ns();
  session->recording.manifest_took_ns = ct_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/*
 * Before the process goes on with modules that it did not have: who reads a block with a call in one of them finds it
 * in the manifest (ct_trace_find_modules). Only where somebody changes patterns meanwhile, who looks at once; elsewhere
 * it costs a process that loads many libraries more than it is worth. True: there were some.
 */
bool
session_list_modules(struct ct_session *session)
{
  bool misses =
      session->recording.is_watched && session->recording.modules.count != session->recording.manifest_modules;
  if (misses) {
    session_write_manifest(session, false);
  }
  return misses;
}

/*
 * There are modules that it does not list: who reads the trace meanwhile does not know where functions are. Where many
 * libraries come one by one, that takes a small part of the time too.
 */
static bool
misses_modules(const struct ct_session *session, uint64_t now)
{
  uint64_t least = COUNTS_SHARE * session->recording.manifest_took_ns;
  return session->recording.modules.count != session->recording.manifest_modules &&
         now - session->recording.manifest_ns > (least > MANIFEST_NS ? least : MANIFEST_NS);
}

/* Events have been recorded since the manifest was written, long enough ago. */
static bool
counts_are_old(const struct ct_session *session, uint64_t now)
{
  uint64_t age = now - session->recording.manifest.ns0, between = age / COUNTS_PART;
  between = between < COUNTS_MIN_NS ? COUNTS_MIN_NS : between > COUNTS_MAX_NS ? COUNTS_MAX_NS : between;
  double limit = session->budget != NULL ? session->options.budget / COUNTS_BUDGET : 1;
  double share = limit * COUNTS_SHARE < 1 ? 1 / limit : COUNTS_SHARE;
  uint64_t least = (uint64_t)(share * (double)session->recording.manifest_took_ns);
  least = least < COUNTS_MAX_NS ? least : COUNTS_MAX_NS;
  return now - session->recording.manifest_ns > (between > least ? between : least) &&
         session->sync.status.events != session->recording.manifest_events;
}

/* Now and then is enough. */
void
session_refresh_manifest(struct ct_session *session)
{
  session_note_cuts(session);
  uint64_t now = ct_now_ns();
  if (session->recording.manifest_is_old && now - session->recording.manifest_ns > MANIFEST_NS) {
    uint64_t bytes = session->recording.image_live ? ct_process_private_bytes(session->target.process.pid) : 0;
    session->recording.manifest.private_bytes = bytes != 0 ? bytes : session->recording.manifest.private_bytes;
    session_write_manifest(session, false);
  } else if (misses_modules(session, now) || counts_are_old(session, now)) {
    session_write_manifest(session, false);
  }
}

struct ct_module_sinks
session_sinks(struct ct_session *session)
{
  return (struct ct_module_sinks){session->recording.writer, session->recording.drain};
}

void
session_sample(struct ct_session *session)
{
  uint32_t mib = session->options.output_mib != 0 ? session->options.output_mib : CT_OUTPUT_MIB_DEFAULT;
  uint64_t limit = session->options.last_bytes != 0 || session->options.max_bytes != 0
                       ? INT64_MAX
                       : (uint64_t)mib << 20; /* the last of it is kept */
  ct_drain_capture(session->recording.drain, session->options.no_output ? 0 : limit);
  uint32_t interval = session->options.sample != 0 ? session->options.sample : 1;
  struct ct_sampling_options options = {.adapts = session->options.sample == 0 && !session->options.no_sampling,
                                        .log2 = (uint32_t)__builtin_ctz(interval),
                                        .mem_fd = session->target.process.mem_fd,
                                        .controls = session->recording.image.layout.controls};
  ct_drain_sample(session->recording.drain, &options);
}

/* Whether the program at path (target: what its users call it) can be recorded at all; and what it needs left out. */
static int
check_image(struct ct_session *session, const char *path, const char *target, struct ct_injected_options *options,
            struct ct_diag *diag)
{
  struct ct_diag why = {""};
  int unused;
  if (ct_process_seccomp(session->target.process.pid) != 0) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s starts under a seccomp filter, which may forbid what recording needs",
                   target);
  }
  if (ct_program_check(path, &unused, &why) != 0) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s cannot be recorded: not a readable 64-bit x86 program", target);
  }
  const struct ct_plan *program = ct_modules_program(&session->recording.modules, session->target.process.pid);
  if (program != NULL && program->gs_unsafe) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s cannot be recorded: it uses the gs register itself, which hooks need",
                   target);
  }
  if (program != NULL && program->translates) {
    return ct_fail(diag, CT_EUNSUPPORTED,
                   "%s cannot be recorded: it translates code, some of its own too, and must find it as it is in the "
                   "file",
                   target);
  }
  options->no_stores = program != NULL && program->no_stores;
  options->no_crash = program == NULL || !ct_plan_hides_handlers(program);
  return 0;
}

struct ct_injected_options
session_image_options(const struct ct_session *session)
{
  const struct ct_session_options *options = &session->options;
  bool has_detail = ct_select_has_lane(options->selection);
  uint32_t stack = options->detail_stack != 0 ? options->detail_stack : CT_DETAIL_STACK_DEFAULT;
  uint64_t mib = options->detail_mib != 0 ? options->detail_mib : CT_DETAIL_MIB_DEFAULT;
  return (struct ct_injected_options){
      .ring_bytes = (uint64_t)options->ring_mib << 20,
      .has_gates = options->budget > 0,
      .first_counted = session->recording.modules.next_fn,
      .lossless = options->lossless,
      .detail_bytes = has_detail ? mib << 20 : 0,
      .detail = {.stack = (uint16_t)(options->no_detail_stack ? 0 : stack), .vectors = options->detail_vectors},
      .detail_always = true,
  };
}

int
session_start_drain(struct ct_session *session, pid_t pid)
{
  const struct ct_injected *image = &session->recording.image;
  session_want_handlers(session);
  session_show_probes(session);
  ct_drain_detail(session->recording.drain, image->layout.detail);
  ct_drain_first_counted(session->recording.drain, image->layout.first_counted);
  if (session_marks_detail(session)) {
    ct_drain_mark_detail(session->recording.drain, session_image_options(session).detail_bytes);
  }
  int code = ct_drain_start(session->recording.drain, &image->parts, image->layout.ring, pid);
  if (code == 0) {
    session_begin_budget(session);
  }
  return code;
}

/* The process stands after an exec: makes the new image ready and resumes it. */
static int
create_image(struct ct_session *session, const struct ct_remote *remote, struct ct_injected_options *options,
             struct ct_diag *diag)
{
  uint64_t sp = 0;
  if (ct_process_stack_pointer(&session->target.process, &sp) != 0) {
    return ct_fail(diag, CT_ESRCH, "the program died while it was being started");
  }
  session_raise_task_limit(session, options);
  return ct_injected_create(remote, sp, options, &session->recording.image, diag);
}

int
session_begin_image(struct ct_session *session, struct ct_diag *diag)
{
  uint64_t begin = ct_now_ns();
  struct ct_injected_options options = session_image_options(session);
  options.int3 = session->options.int3;
  options.follow = session->node.tree != NULL;
  char path[64], target[PATH_MAX];
  pid_t pid = session->target.process.pid;
  ct_process_path(pid, "exe", path, sizeof(path));
  ssize_t length = readlink(path, target, sizeof(target) - 1);
  target[length > 0 ? length : 0] = '\0';
  struct ct_remote remote = ct_injected_remote(&session->target.process);
  int code = check_image(session, path, target, &options, diag);
  code = code == 0 ? create_image(session, &remote, &options, diag) : code;
  ct_manifest_image(&session->recording.manifest, pid, target, code == 0 ? NULL : diag->text);
  if (code != 0) {
    return code;
  }
  session->recording.image_live = true;
  struct ct_module_sinks to = session_sinks(session);
  remote.deadline_ns = ct_modules_deadline(&session->recording.modules, pid, true, session->options.deadline_ms);
  /* Before there are hooks: from here on we may be killed, and the program goes on. */
  code = ct_process_set_gs_base(&session->target.process, session->recording.image.layout.page_lookup);
  if (code == 0) {
    code = ct_modules_update(&session->recording.modules, session->recording.image_count, &remote,
                             &session->recording.image.layout, &to, diag);
  }
  session->recording.image_count++;
  session_publish(session);
  if (code >= 0) {
    session_sample(session);
    code = session_start_drain(session, pid);
    if (code != 0) {
      ct_fail(diag, code,
              "cannot start threads: out of memory, or the user's limit of processes (ulimit -u) is reached");
    }
  }
  session_set_doorbell(session, &session->recording.image.ring->control_doorbell);
  session->recording.manifest.install_ns += ct_now_ns() - begin;
  session_write_manifest(session, false);
  return code;
}

void
session_publish(struct ct_session *session)
{
  struct ct_module_sinks to = session_sinks(session);
  ct_modules_publish(&session->recording.modules, &to);
}

/* The image has ended, by exec or with the process. */
void
session_end_image(struct ct_session *session, bool by_exec)
{
  if (!session->recording.image_live) {
    if (session->recording.drain != NULL) { /* the image before this one may have left it a thread */
      ct_drain_stop(session->recording.drain, 0, session->recording.manifest.end_tsc);
    }
    return;
  }
  session_itrace_end_image(session);
  session_publish(session);
  session_note_cuts(session);
  session_watch_handlers(session);
  session_read_cpu(session);
  session_end_budget(session);
  if (!by_exec) {
    ct_manifest_stop(&session->recording.manifest);
  }
  ct_drain_stop(session->recording.drain, by_exec ? session->target.process.own_pid : 0,
                by_exec ? __builtin_ia32_rdtsc() : session->recording.manifest.end_tsc);
  session_close_budget(session);
  session_set_doorbell(session, NULL);
  if (session->recording.image.ring->closed == 0) {
    session_keep_lingering_image(session);
  }
  if (session->recording.image.ring != NULL) {
    if (session->node.tree != NULL) {
      tree_count_lost(session->node.tree,
                      __atomic_load_n(&session->recording.image.ring->handshakes_lost, __ATOMIC_RELAXED));
    }
    __atomic_store_n(&session->recording.image.ring->closed, 1, __ATOMIC_RELEASE);
  }
  ct_injected_free(&session->recording.image);
  session->recording.crashes = 0;
  ct_modules_forget(&session->recording.modules);
  session_clear_history(session);
  memset(&session->node.handshake_queue, 0, sizeof(session->node.handshake_queue));
  session->node.hooks_version = 0; /* of the next one */
  session->recording.image_live = false;
}

static void
remove_empty_trace(const char *directory, bool ours)
{
  static const char *const names[] = {"manifest.json", "functions.tsv", "sources.tsv", "prototypes.tsv"};
  char path[PATH_MAX];
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
    unlink(path);
  }
  if (ours) {
    rmdir(directory);
  }
}

/* The recording keeps the last stretch only. */
static int
keep_last(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_store *store;
  uint64_t bytes = session->options.last_bytes;
  if (session->node.is_child) {
    bytes = bytes / CHILD_STORE > CT_STORE_BYTES_MIN ? bytes / CHILD_STORE : CT_STORE_BYTES_MIN;
  }
  int code = ct_store_create(bytes, session->options.last_ns, &store, diag);
  if (code == 0) {
    ct_trace_writer_keep(session->recording.writer, store);
  }
  return code;
}

int
session_open_trace(struct ct_session *session, struct ct_diag *diag)
{
  const struct ct_session_options *options = &session->options;
  if (options->replace && !session->node.is_child) {
    int moved = ct_trace_move_old(options->directory, diag);
    if (moved != 0) {
      return moved;
    }
  }
  session->recording.cpu = (struct ct_cpu_times){.recorder0_ns = ct_recorder_cpu_ns()};
  session->recording.existed = access(options->directory, F_OK) == 0;
  int code = ct_trace_writer_create(options->directory, session->node.is_child ? CHILD_BYTES : BUFFER_BYTES,
                                    &session->recording.writer, diag);
  if (code != 0) {
    session->recording.writer = NULL;
    return code;
  }
  if (ct_select_has_values(options->selection)) {
    ct_trace_writer_near_values(session->recording.writer);
  }
  if (options->give && !session->node.is_child) {
    session->recording.directory_fd = fcntl(ct_trace_writer_directory(session->recording.writer), F_DUPFD_CLOEXEC, 0);
  }
  if (options->last_bytes != 0 && (code = keep_last(session, diag)) != 0) {
    session_drop_trace(session);
    return code;
  }
  if (options->max_bytes != 0 &&
      (code = ct_trace_writer_limit(session->recording.writer, session_max_bytes(session))) != 0) {
    session_drop_trace(session);
    return ct_fail(diag, code, "out of memory");
  }
  code = ct_drain_create(session->recording.writer, &session->recording.writer_lock,
                         options->max_depth != 0 ? options->max_depth : UINT32_MAX, &session->target.pause_request,
                         &session->recording.drain);
  if (code != 0) {
    session_drop_trace(session);
    return ct_fail(diag, code, "out of memory");
  }
  session->recording.manifest.costs =
      session->node.is_child ? tree_costs(session->node.tree) : ct_measure_hook_costs(ct_injected_store_delta());
  session->recording.modules.exclude = options->exclude;
  session->recording.modules.selection = options->selection;
  if (session->node.tree == NULL) {
    session->recording.own_plans = ct_plans_create(options->int3, options->no_cache, options->debuginfod);
    if (session->recording.own_plans == NULL) {
      session_drop_trace(session);
      return ct_fail(diag, CT_ENOMEM, "out of memory");
    }
  }
  session->recording.modules.plans =
      session->node.tree != NULL ? ct_process_tree_plans(session->node.tree) : session->recording.own_plans;
  session->recording.manifest.cache = ct_plans_cache(session->recording.modules.plans);
  session->recording.modules.is_cancelled = &session->sync.is_cancelled;
  code = session_begin_triggers(session, diag);
  code = code == 0 ? session_begin_itrace(session, diag) : code;
  if (code != 0) {
    session_drop_trace(session);
  }
  return code;
}

static void
free_stacks(struct ct_session *session)
{
  ct_stacks_free(session->recording.stacks);
  session->recording.stacks = NULL;
  session->recording.stacks_begun = false;
}

static void
free_trace(struct ct_session *session)
{
  ct_drain_free(session->recording.drain);
  session->recording.drain = NULL;
  session_end_triggers(session);
  session_free_itrace(session);
  session->recording.writer = NULL;
  ct_manifest_free(&session->recording.manifest);
  memset(&session->recording.manifest, 0, sizeof(session->recording.manifest));
  ct_modules_free(&session->recording.modules);
  if (session->recording.own_plans != NULL) {
    ct_select_end(session->options.selection);
  }
  ct_plans_free(session->recording.own_plans);
  session->recording.own_plans = NULL;
}

void
session_close_trace(struct ct_session *session)
{
  struct ct_diag diag = {""};
  struct ct_drain_stats stats;
  if (session->recording.writer == NULL) {
    return;
  }
  session_await_dumps(session);
  session_join_dumper(session);
  free_stacks(session);
  /* Without them the trace is as good as before, so a failure is none of the recording's. */
  session_note_table(
      session,
      ct_modules_write_sources(&session->recording.modules, session->options.sources, session->recording.writer),
      "functions have no source lines");
  session_note_table(session, ct_modules_write_prototypes(&session->recording.modules, session->recording.writer),
                     "values have no types");
  session_note_unknown(session);
  session_note_fetch(session);
  session_note_dump(session);
  session_note_unmatched(session);
  session_note_unseen(session);
  session_end_itrace(session);
  if (!session->node.is_child) {
    ct_plans_suggest(session->recording.modules.plans, session->options.selection, session->options.exclude);
  }
  while (ct_plans_store(session->recording.modules.plans)) { /* the manifest says what had to go for that */
  }
  session_write_manifest(session, true);
  if (ct_trace_writer_changed(session->recording.writer)[0] != '\0') {
    session_note(session, ct_trace_writer_changed(session->recording.writer));
  }
  ct_drain_stats(session->recording.drain, &stats);
  struct ct_cost cost = session_cost(session, stats.hook_events, stats.dropped_by);
  struct ct_detail_stats detail = ct_drain_detail_stats(session->recording.drain);
  int code = ct_trace_writer_close(session->recording.writer, &diag);
  if (session->recording.result == 0 && code != 0) {
    session->recording.result = code;
    session->recording.why = diag;
  }
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.events = stats.events;
  session->sync.status.dropped = stats.dropped;
  session->sync.status.cost = cost;
  memcpy(session->sync.status.dropped_by, stats.dropped_by, sizeof(stats.dropped_by));
  session_count_detail(session, &detail);
  session_count_windows(session);
  pthread_mutex_unlock(&session->sync.guard);
  free_trace(session);
}

void
session_drop_trace(struct ct_session *session)
{
  session_await_dumps(session);
  session_join_dumper(session);
  free_stacks(session);
  if (session->recording.writer != NULL) {
    ct_trace_writer_close(session->recording.writer, NULL);
    free_trace(session);
    remove_empty_trace(session->options.directory, !session->recording.existed);
  }
}
