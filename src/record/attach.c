/* SPDX-License-Identifier: MIT */
/*
 * Stopping a process that runs: to put hooks in (attach), for a moment's change, to take them out (detach); and
 * cleaning up what a dead session left. See session_internal.h.
 *
 * All files are planned before the process is stopped, so that it is stopped only for what must be done then.
 */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/sized.h"
#include "base/test_point.h"

#include "hook/signals.h"
#include "hook/undo.h"
#include "itrace/leftovers.h"
#include "process/ids.h"
#include "record/program.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IMAGES_MAX    64    /* in one process: others than ours are not there, whatever lies in its memory */
#define CLEAN_ROUNDS  4     /* of looking for children that were never heard of */
#define STOP_MS       4000  /* to stop all threads ... */
#define STOP_LATER_MS 20000 /* ... of a process that has hooks: it is not left with them for some thread */
#define ENDING_MS_MIN 1000  /* for each, when many are detached */
#define UNDO_MS       20000 /* for threads to leave our code; the process runs most of that time */
#define LEAVE_MS      25000 /* to detach, both together ... */
#define UNDO_LEAST_MS 5000  /* ... and there is always time to take the hooks out of what has stopped at last */
#define CHILDREN_MS   10000 /* for all children that were never heard of: there may be any number that do not stop */
#define HASTE_MS      500   /* ... when somebody wants an end to it */

static int
stopped_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  return ct_stopped_syscall(context, number, args, result);
}

struct ct_remote
session_stopped_remote(struct ct_session *session)
{
  return (struct ct_remote){.process = &session->target.process,
                            .syscall = stopped_syscall,
                            .context = &session->target.stopped,
                            .pcs = session->target.stopped.pcs,
                            .pc_count = session->target.stopped.pc_count};
}

static struct ct_inner_stacks
agent_stacks(const struct ct_session *session)
{
  uint64_t start = session->recording.image.layout.controls;
  return (struct ct_inner_stacks){start, start != 0 ? (uint64_t)CT_SLOT_COUNT * CT_CONTROL_STRIDE : 0,
                                  CT_CONTROL_STRIDE, session->recording.image.layout.store_delta};
}

/* A child of vfork on its way to its exec waits for us, and a thread of ours for it. */
static void
serve_handshakes(void *context)
{
  session_serve_handshakes(context);
}

static const struct ct_session *
first_of(const struct ct_session *session)
{
  return session->node.is_child ? tree_first(session->node.tree) : session;
}

static bool
has_commands(void *context)
{
  return session_has_commands(context);
}

void
session_bound_waits(struct ct_session *session)
{
  session->target.process.expedited = &first_of(session)->sync.expedited;
  session->target.process.asked = has_commands;
  session->target.process.asked_context = session;
}

/* For a wait at the end: of all processes together it is not much longer than of one. */
static int
ending_ms(const struct ct_session *session, int most)
{
  return session->node.tree != NULL ? tree_ending_ms(session->node.tree, most, ENDING_MS_MIN) : most;
}

int
session_stop_threads(struct ct_session *session, struct ct_diag *diag)
{
  uint64_t restorers[CT_RESTORER_MAX];
  if (session->target.is_stopped) {
    return 0;
  }
  size_t count =
      ct_modules_restorers(&session->recording.modules, session->target.process.pid, restorers, CT_RESTORER_MAX);
  uint64_t begin = __builtin_ia32_rdtsc();
  session->target.process.pause_request = &session->target.pause_request;
  session_bound_waits(session);
  session->target.process.meanwhile = session->recording.image_live ? serve_handshakes : NULL;
  session->target.process.meanwhile_context = session;
  int wait_ms = session->recording.image_live ? ending_ms(session, STOP_LATER_MS) : STOP_MS;
  int code = ct_process_stop(&session->target.process, wait_ms, &session->target.stopped, diag);
  if (code != 0) {
    session->target.process.pause_request = NULL;
    return code;
  }
  session->target.stopped_since_ns = session->target.stopped.since_ns;
  session->target.stopped_since_tsc = begin;
  session->target.is_stopped = true;
  code = ct_stopped_find_pcs(&session->target.stopped, restorers, count, agent_stacks(session));
  code = code == 0 ? ct_stopped_sweep(&session->target.stopped) : code;
  if (code != 0) {
    session_resume_threads(session);
    return ct_fail(diag, code, "cannot find where the threads of process %d stand: %s",
                   (int)session->target.process.pid, ct_err_text(code));
  }
  return 0;
}

static void
note_pause(struct ct_session *session, size_t threads, uint64_t pause)
{
  pthread_mutex_lock(&session->sync.guard);
  struct ct_session_status *status = &session->sync.status;
  status->pause_ns = pause > status->pause_ns ? pause : status->pause_ns;
  status->threads = threads;
  if (status->attached && status->attach_ns == 0) {
    status->attach_ns = pause;
  }
  pthread_mutex_unlock(&session->sync.guard);
}

uint64_t
session_resume_threads(struct ct_session *session)
{
  uint64_t pause = 0;
  if (session->target.is_stopped) {
    size_t threads = session->target.stopped.thread_count;
    if (session->recording.drain != NULL) {
      ct_drain_add_stop(session->recording.drain, session->target.stopped_since_tsc, __builtin_ia32_rdtsc());
    }
    pause = ct_process_resume(&session->target.stopped);
    session->target.is_stopped = false;
    note_pause(session, threads, pause);
  }
  session->target.process.pause_request = NULL; /* whoever stops it for another reason may need the drain */
  return pause;
}

/* ---- attach ---- */

/* Each thread has a filter of its own, or none. What registers with us under one may be killed for it. */
static int
check_filters(pid_t pid, struct ct_diag *diag)
{
  pid_t tid = ct_process_seccomp_thread(pid);
  return tid == 0     ? 0
         : tid == pid ? ct_fail(diag, CT_EUNSUPPORTED,
                                "process %d runs under seccomp, which may forbid what recording needs", (int)pid)
                      : ct_fail(diag, CT_EUNSUPPORTED,
                                "thread %d of process %d runs under seccomp, which may forbid what recording needs",
                                (int)tid, (int)pid);
}

/* What may come until the threads are stopped. */
static int
check_stopped(struct ct_session *session, pid_t pid, struct ct_diag *diag)
{
  pid_t sharer = ct_stopped_sharer(&session->target.stopped);
  if (sharer != 0) { /* hooks need gs, which only its own creator could have given it */
    return ct_fail(diag, CT_EUNSUPPORTED,
                   "process %d has the memory of process %d and is no thread of it (clone with CLONE_VM): it would "
                   "come into hooks that know nothing of it (contrail record, from the start, can record that program)",
                   (int)sharer, (int)pid);
  }
  pid_t tid = ct_stopped_dispatched(&session->target.stopped);
  if (tid != 0) {
    return ct_fail(diag, CT_EUNSUPPORTED,
                   "thread %d of process %d is under Syscall User Dispatch: system calls that recording needs would "
                   "come to the program (contrail record, from its start, makes none then)",
                   (int)tid, (int)pid);
  }
  return check_filters(pid, diag);
}

/* What speaks against it before anything is touched. */
static int
check_target(pid_t pid, struct ct_diag *diag)
{
  char path[64], target[PATH_MAX];
  int unused;
  char state = ct_process_state(pid);
  if (!ct_proc_is_ours()) { /* which tells it of somebody else */
    struct ct_process unopened;
    return ct_process_open(pid, &unopened, diag);
  }
  if (pid <= 0 || state == 0) {
    return ct_fail(diag, CT_ESRCH, "there is no process %d", (int)pid);
  }
  if (pid == getpid()) {
    return ct_fail(diag, CT_EINVAL, "process %d is contrail itself", (int)pid);
  }
  ct_process_path(pid, "exe", path, sizeof(path));
  ssize_t length = readlink(path, target, sizeof(target) - 1);
  if (length < 0 && errno == ENOENT && (state == 'Z' || state == 'X')) {
    return ct_fail(diag, CT_ESRCH, "process %d has ended (its parent has not asked for its status yet)", (int)pid);
  }
  if (length < 0 && errno == ENOENT) {
    return ct_fail(diag, CT_EUNSUPPORTED, "process %d is a thread of the kernel", (int)pid);
  }
  if (length < 0) {
    return ct_fail(diag, CT_EPERM_PTRACE, "process %d may not be traced by you: %s (%s)", (int)pid, strerror(errno),
                   geteuid() != 0 ? "it belongs to somebody else, or is protected; run as root"
                                  : "it is protected, or root lacks CAP_SYS_PTRACE, as in a container");
  }
  target[length] = '\0';
  pid_t tracer = ct_process_tracer(pid);
  for (int ms = 0; tracer != 0 && ct_process_is_going(tracer, ms); ms++) {
    tracer = ct_process_tracer(pid);
  }
  if (tracer != 0) {
    return ct_fail(diag, CT_EPERM_PTRACE, "process %d is being traced by process %d (a debugger?); end that first",
                   (int)pid, (int)tracer);
  }
  int code = check_filters(pid, diag);
  if (code != 0) {
    return code;
  }
  struct ct_diag why = {""};
  if (ct_program_check(path, &unused, &why) != 0 && unused == 0) {
    return ct_fail(diag, CT_EUNSUPPORTED, "process %d (%s) cannot be recorded: not a readable 64-bit x86 program",
                   (int)pid, target);
  }
  return 0;
}

/* What the program itself speaks against it, or against parts of it. *crashes: its fatal signals can be handled. */
static int
check_program(struct ct_session *session, struct ct_injected_options *options, bool *crashes, struct ct_diag *diag)
{
  pid_t pid = session->target.process.pid;
  const struct ct_plan *program = ct_modules_program(&session->recording.modules, pid);
  if (program != NULL && program->gs_unsafe) {
    return ct_fail(diag, CT_EUNSUPPORTED,
                   "process %d cannot be recorded: its program uses the gs register itself, "
                   "which hooks need",
                   (int)pid);
  }
  if (program != NULL && program->translates) {
    return ct_fail(diag, CT_EUNSUPPORTED,
                   "process %d cannot be recorded: its program translates code, some of its own "
                   "too",
                   (int)pid);
  }
  options->no_stores = program != NULL && program->no_stores;
  *crashes = program != NULL && ct_plan_hides_handlers(program);
  return 0;
}

/* A forked child that nobody followed: what it has is a copy, but for the ring, which is its parent's still. */
static bool
is_of_its_parent(const struct ct_process *process, const struct ct_detection *found)
{
  return found->ring != 0 && found->header->target_pid != (uint32_t)process->own_pid;
}

/* Such a child, stopped, gets a ring of its own, so that nothing of its parent's is written to. */
static int
separate(struct ct_stopped *stopped, struct ct_detection *found, struct ct_diag *diag)
{
  const struct ct_inside *inside = &found->header->inside;
  struct ct_remote remote = {.process = stopped->process, .syscall = stopped_syscall, .context = stopped};
  struct ct_injected_options options = {.ring_bytes = 1};
  struct ct_injected image = {.layout = {.ring = found->ring,
                                         .config = inside->config,
                                         .controls = inside->controls,
                                         .scratch = inside->agent + inside->agent_bytes - CT_SIGNAL_SCRATCH_BYTES}};
  if (inside->config == 0) {
    return ct_fail(diag, CT_EUNSUPPORTED, "the hooks of process %d cannot be told from those of its parent",
                   (int)stopped->process->pid);
  }
  int code = ct_injected_adopt(&remote, &options, 0, &image, diag);
  if (code == 0) {
    ct_injected_free(&image);
    ct_detection_free(found);
    code = ct_detect(stopped->process, found, diag);
  }
  return code;
}

static int
too_many_images(pid_t pid, struct ct_diag *diag)
{
  return ct_fail(diag, CT_EUNSUPPORTED, "process %d has more in its memory that looks like ours than there can be",
                 (int)pid);
}

static int
take_out_found(struct ct_session *session, struct ct_detection *found, size_t n, struct ct_diag *diag)
{
  struct ct_undone undone;
  int code = 0;
  if (is_of_its_parent(&session->target.process, found)) {
    code = separate(&session->target.stopped, found, diag);
  } else if (ct_detection_is_in_use(found)) {
    code = ct_fail(diag, CT_EEXIST, "process %d is being recorded by contrail, process %d, already",
                   (int)session->target.process.pid, (int)found->header->controller_pid);
  } else if (n == IMAGES_MAX) {
    code = too_many_images(session->target.process.pid, diag);
  }
  if (code != 0) {
    return code;
  }
  code = ct_undo(&session->target.stopped, found, UNDO_MS, NULL, &undone, diag);
  session->target.is_stopped = session->target.stopped.thread_count != 0;
  if (code == 0 && undone.kept) {
    code = ct_fail(diag, CT_ETIMEOUT,
                   "process %d has a signal handler running since an earlier recording; try again "
                   "when it has returned",
                   (int)session->target.process.pid);
  }
  return code;
}

/* Something of ours is in the process: of a session that died, it is taken out; of one that lives, that is an error. */
static int
take_over(struct ct_session *session, struct ct_diag *diag)
{
  struct ct_detection found;
  int code = ct_detect(&session->target.process, &found, diag);
  for (size_t n = 0; code == 0; n++) {
    code = take_out_found(session, &found, n, diag);
    ct_detection_free(&found);
    if (code == 0) {
      code = ct_detect(&session->target.process, &found, diag); /* there may be more than one */
    }
  }
  return code == CT_ENOENT ? 0 : code;
}

static int
put_in(struct ct_session *session, const struct ct_injected_options *options, bool crashes, struct ct_diag *diag)
{
  uint64_t base, sp = 0, restorers[CT_RESTORER_MAX];
  ct_stopped_gs_base(&session->target.stopped, &base);
  if (base != 0) {
    return ct_fail(diag, CT_EUNSUPPORTED,
                   "process %d cannot be recorded: it uses the gs register itself, which hooks "
                   "need",
                   (int)session->target.process.pid);
  }
  ct_stopped_stack_pointer(&session->target.stopped, &sp);
  struct ct_remote remote = session_stopped_remote(session);
  int code = ct_injected_create(&remote, sp, options, &session->recording.image, diag);
  if (code != 0) {
    return code;
  }
  session->recording.image_live = true;
  ct_test_point("attach-mapped");
  code = ct_stopped_set_gs_base(&session->target.stopped, session->recording.image.layout.page_lookup);
  size_t count =
      ct_modules_restorers(&session->recording.modules, session->target.process.pid, restorers, CT_RESTORER_MAX);
  if (code == 0) {
    code = ct_stopped_find_pcs(&session->target.stopped, restorers, count, agent_stacks(session));
  }
  if (code != 0) {
    return ct_fail(diag, code, "lost process %d: %s", (int)session->target.process.pid, ct_err_text(code));
  }
  remote = session_stopped_remote(session);
  remote.deadline_ns = ct_modules_deadline(&session->recording.modules, session->target.process.pid, false,
                                           session->options.deadline_ms);
  struct ct_module_sinks to = session_sinks(session);
  code = ct_modules_update(&session->recording.modules, session->recording.image_count++, &remote,
                           &session->recording.image.layout, &to, diag);
  session_publish(session);
  if (code >= 0 && crashes) {
    /* Who is in sigaction gets the kernel's answer. */
    bool later = ct_modules_in_sigaction(&session->recording.modules, session->target.stopped.pcs,
                                         session->target.stopped.pc_count);
    code = ct_signals_take(&remote, &session->recording.image.layout, false, later);
  }
  session_read_handlers(session, &remote);
  return code < 0 ? code : 0;
}

static int
undo_ms(uint64_t since_ns)
{
  uint64_t spent_ms = (ct_now_ns() - since_ns) / 1000000;
  return spent_ms + UNDO_MS <= LEAVE_MS         ? UNDO_MS
         : spent_ms + UNDO_LEAST_MS >= LEAVE_MS ? UNDO_LEAST_MS
                                                : (int)(LEAVE_MS - spent_ms);
}

/* The image goes out of the stopped process again, which somebody waits for since then. */
static int
take_out(struct ct_session *session, uint64_t since_ns, const struct ct_undo_wait *wait, struct ct_undone *undone,
         struct ct_diag *diag)
{
  struct ct_detection found;
  int code = ct_detect(&session->target.process, &found, diag);
  if (code == 0) {
    code = ct_undo(&session->target.stopped, &found, ending_ms(session, undo_ms(since_ns)), wait, undone, diag);
    session->target.is_stopped = session->target.stopped.thread_count != 0;
    ct_detection_free(&found);
  }
  return code;
}

/* All threads stand: hooks go in, and what they were in is kept. */
static int
hook_stopped(struct ct_session *session, const struct ct_injected_options *options, bool crashes, struct ct_diag *diag)
{
  struct ct_stacks *stacks = session->recording.stacks;
  pid_t pid = session->target.process.pid;
  if (stacks != NULL) {
    ct_stacks_copy(stacks, &session->target.stopped);
  }
  ct_manifest_attach(&session->recording.manifest, &session->options, pid);
  session_clock_rules(session);
  int code = put_in(session, options, crashes, diag);
  if (code != 0) {
    goto take_out;
  }
  session_sample(session);
  code = session_start_drain(session, pid);
  if (code != 0) {
    goto take_out;
  }
  if (stacks != NULL) {
    ct_stacks_know(stacks, &session->recording.modules);
  }
  return 0;
take_out:
  if (session->recording.image_live && session->target.is_stopped) {
    struct ct_undone undone;
    take_out(session, ct_now_ns(), NULL, &undone, NULL);
  }
  return code;
}

int
session_attach(struct ct_session *session, pid_t pid, struct ct_diag *diag)
{
  struct ct_injected_options options = session_image_options(session);
  options.running = true;
  options.follow = session->node.tree != NULL;
  options.no_crash = true; /* not yet */
  bool crashes = false;
  int code = check_target(pid, diag);
  if (code != 0 || (code = ct_process_open(pid, &session->target.process, diag)) != 0 ||
      (code = session_open_trace(session, diag)) != 0) {
    return code;
  }
  ct_modules_check(&session->recording.modules, pid); /* plans all files */
  code = ct_modules_are_cancelled(&session->recording.modules) ? ct_fail(diag, CT_ECANCELED, "cancelled")
                                                               : check_program(session, &options, &crashes, diag);
  if (code != 0) {
    goto drop_trace;
  }
  session->recording.stacks = ct_stacks_create(&session->target.process, session->recording.writer);
  ct_test_point("attach-planned");
  struct ct_itrace_leftovers leftovers = {0};
  bool has_leftovers = ct_itrace_has_leftovers(pid);
  if ((code = session_stop_threads(session, diag)) != 0) {
    goto drop_trace;
  }
  ct_test_point("attach-stopped");
  if ((code = check_stopped(session, pid, diag)) != 0 || (code = take_over(session, diag)) != 0) {
    goto drop_trace;
  }
  if (has_leftovers) { /* they are in nobody's way, should that fail */
    ct_itrace_take_out(&session->target.stopped, &leftovers);
  }
  if ((code = hook_stopped(session, &options, crashes, diag)) != 0) {
    goto drop_trace;
  }
  ct_test_point("attach-hooked");
  session_set_doorbell(session, &session->recording.image.ring->control_doorbell);
  session->recording.manifest.install_ns += ct_now_ns() - session->target.stopped_since_ns;
  return 0;
drop_trace:
  session_resume_threads(session);
  session_end_image(session, false);
  session_drop_trace(session);
  return code;
}

/* ---- cleaning up ---- */

/* How long it may take; of one process, by itself, as long as each step may. */
struct haste {
  const _Atomic uint32_t *expedited;
  uint64_t deadline_ns; /* 0: none */
};

static bool
is_late(struct haste *haste)
{
  uint64_t now = ct_now_ns(), soon = now + HASTE_MS * 1000000ull;
  if (haste->expedited != NULL && haste->deadline_ns > soon &&
      atomic_load_explicit(haste->expedited, memory_order_relaxed) != 0) {
    haste->deadline_ns = soon;
  }
  return haste->deadline_ns != 0 && now >= haste->deadline_ns;
}

static int
left_ms(const struct haste *haste, int most)
{
  uint64_t now = ct_now_ns(), left = haste->deadline_ns > now ? (haste->deadline_ns - now) / 1000000u : 0;
  return haste->deadline_ns == 0 || left > (uint64_t)most ? most : (int)left;
}

/* The innermost image goes; the process is stopped from the first one on. */
static int
clean_one(struct ct_process *process, struct ct_detection *found, size_t cleaned, struct ct_stopped *stopped,
          const struct haste *haste, struct ct_undone *undone, struct ct_diag *diag)
{
  bool is_parents = is_of_its_parent(process, found);
  int code;
  if (!is_parents && ct_detection_is_in_use(found)) {
    return ct_fail(diag, CT_EEXIST, "process %d is being recorded by contrail, process %d; end that first",
                   (int)process->pid, (int)found->header->controller_pid);
  }
  if (cleaned == IMAGES_MAX) {
    return too_many_images(process->pid, diag);
  }
  if ((stopped->thread_count == 0 && (code = ct_process_stop(process, left_ms(haste, STOP_MS), stopped, diag)) != 0) ||
      (is_parents && (code = separate(stopped, found, diag)) != 0)) {
    return code;
  }
  return ct_undo(stopped, found, left_ms(haste, UNDO_MS), NULL, undone, diag);
}

static int
clean(pid_t pid, const struct haste *haste, struct ct_clean_report *report, struct ct_diag *diag)
{
  struct ct_process process = {.mem_fd = -1, .pidfd = -1};
  struct ct_detection found;
  struct ct_undone undone = {0};
  struct ct_stopped stopped = {0};
  int code = check_target(pid, diag);
  code = code == CT_EUNSUPPORTED ? 0 : code;
  if (code == 0) {
    code = ct_process_open(pid, &process, diag);
  }
  if (code != 0) {
    return code;
  }
  process.expedited = haste->expedited;
  size_t cleaned = 0;
  while ((code = ct_detect(&process, &found, diag)) == 0) {
    code = clean_one(&process, &found, cleaned, &stopped, haste, &undone, diag);
    ct_detection_free(&found);
    if (code != 0) {
      break;
    }
    cleaned++;
    report->patches += undone.patches;
    report->frames += undone.frames;
    report->threads = undone.threads;
    report->pause_ns = undone.pause_ns > report->pause_ns ? undone.pause_ns : report->pause_ns;
    if (undone.kept) {
      report->kept = true;
      report->is_filtered = undone.is_filtered;
      break;
    }
  }
  if (stopped.thread_count != 0) {
    uint64_t pause = ct_process_resume(&stopped);
    report->pause_ns = pause > report->pause_ns ? pause : report->pause_ns;
  }
  ct_process_close(&process, false);
  if (code == CT_ENOENT || (code == 0 && !undone.kept)) {
    struct ct_itrace_leftovers leftovers;
    int itrace_code = ct_itrace_clean(pid, &leftovers, diag);
    if (itrace_code != 0) {
      return itrace_code;
    }
    report->itrace_bytes = leftovers.bytes;
    report->itrace_kept = leftovers.kept;
    cleaned += leftovers.mappings != 0 || leftovers.kept;
  }
  if (code == CT_ENOENT && cleaned == 0) {
    return ct_fail(diag, CT_ENOENT, "there is nothing of contrail in process %d", (int)pid);
  }
  return code == CT_ENOENT ? 0 : code;
}

/* Forked by the session's process (no child of vfork, which has its memory), and never heard of. */
static bool
is_unheard(struct ct_session *session, pid_t pid, const struct ct_inside *inside)
{
  struct ct_process process = {.mem_fd = -1, .pidfd = -1};
  struct ct_detection found;
  uint64_t own = 1;
  bool is = false;
  if (tree_knows(session->node.tree, pid) || ct_process_open(pid, &process, NULL) != 0) {
    return false;
  }
  if (ct_detect(&process, &found, NULL) == 0) {
    is = is_of_its_parent(&process, &found) && found.header->controller_pid == (uint32_t)getpid() &&
         found.header->target_pid == session->recording.image.ring->target_pid &&
         ct_process_read(&process, inside->controls + CT_CONTROL_OWN, &own, sizeof(own)) == 0 && own == 0;
    ct_detection_free(&found);
  }
  ct_process_close(&process, false);
  return is;
}

struct pids {
  pid_t *items;
  size_t count;
};

static bool
add_pid(void *context, pid_t pid)
{
  struct pids *pids = context;
  pid_t *grown = reallocarray(pids->items, pids->count + 1, sizeof(*grown));
  if (grown != NULL) {
    pids->items = grown;
    pids->items[pids->count++] = pid;
  }
  return false;
}

/*
 * The process has no hooks any more, and nobody is followed. What the ring says of the hooks is no longer the
 * process's concern, but that of children which were forked while it had them.
 */
static void
clean_children(struct ct_session *session, const struct ct_inside *inside)
{
  struct haste haste = {&first_of(session)->sync.expedited, ct_now_ns() + CHILDREN_MS * 1000000ull};
  size_t cleaned = 1;
  session->recording.image.ring->inside = *inside;
  for (size_t round = 0; round < CLEAN_ROUNDS && cleaned != 0; round++) {
    struct pids pids = {0};
    ct_process_descendants(session->target.process.pid, add_pid, &pids);
    cleaned = 0;
    for (size_t i = 0; i < pids.count && !is_late(&haste); i++) {
      struct ct_clean_report report = {.struct_size = sizeof(report)};
      if (is_unheard(session, pids.items[i], inside)) {
        cleaned += clean(pids.items[i], &haste, &report, NULL) == 0;
      }
    }
    free(pids.items);
  }
  if (is_late(&haste)) { /* they have what children have that are not followed */
    session_note(
        session,
        "children of it that contrail had not heard of did not all stop in time: their hooks stay, out of use");
  }
}

/* ---- detach ---- */

int
session_leave(struct ct_session *session, const struct ct_undo_wait *wait, struct ct_diag *diag)
{
  struct ct_undone undone = {0};
  struct ct_inside inside;
  bool failed_before = !session->recording.image_live;
  bool ending = session->node.tree != NULL && tree_is_ending(session->node.tree);
  uint64_t since_ns = ct_now_ns();
  int code = session_stop_threads(session, diag);
  ct_test_point("detach-stopped");
  if (code == 0 && !failed_before) {
    ct_manifest_stop(&session->recording.manifest);
    __atomic_store_n(&session->recording.image.ring->closed, 1, __ATOMIC_RELEASE);
    inside = session->recording.image.ring->inside;
    if (ending) {
      session_serve_handshakes(session); /* who waits is refused */
    }
    code = take_out(session, since_ns, wait, &undone, diag);
    if (code == 0 && undone.is_filtered) {
      session_note(session,
                   "the hooks are out of the program; what they used stays mapped: its seccomp filter may forbid more");
    }
  }
  ct_test_point("detach-unhooked");
  uint64_t pause = session_resume_threads(session);
  ct_test_point("detach-resumed");
  if (code == 0 && ending && !failed_before) {
    clean_children(session, &inside);
  }
  if (code != 0 && wait != NULL && wait->failed != NULL && !failed_before) {
    wait->failed(wait->context);
  }
  if (code != 0 && ct_process_has_died(&session->target.process)) {
    code = 0; /* as good */
  }
  session_end_image(session, false);
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.detach_ns = undone.pause_ns > pause ? undone.pause_ns : pause;
  session->sync.status.kept = undone.kept && !undone.is_filtered;
  pthread_mutex_unlock(&session->sync.guard);
  return code;
}

int
session_detach(struct ct_session *session, struct ct_diag *diag)
{
  return session_leave(session, NULL, diag);
}

int
ct_clean(pid_t pid, struct ct_clean_report *report, struct ct_diag *diag)
{
  struct ct_clean_report own = {0};
  int code = clean(pid, &(struct haste){0}, &own, diag);
  return code == 0 ? ct_sized_give(report, &own, sizeof(own), diag) : code;
}
