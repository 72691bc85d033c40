/* SPDX-License-Identifier: MIT */
/*
 * A recording, on the controller's main thread: it starts the program, installs hooks, answers requests of the agent,
 * follows execs and waits for the end. The drain is a second thread.
 *
 * ptrace holds the target only behind an exec, for the time of the installation; in between it runs free. When it needs
 * us, it rings control_bell in the ring (also rung by our SIGCHLD handler): start-up libraries and dlopen (rendezvous),
 * and execs.
 */
#include "record/session.h"

#include "drain/drain.h"
#include "record/image.h"
#include "record/manifest.h"
#include "record/modules.h"
#include "record/program.h"

#include "process/freeze.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES  (48u << 20) /* what the encoders may hold */
#define IDLE_MS       200
#define LOOK_NS       50000000ull  /* between looks for libraries of which no loader tells */
#define LOOK_TOLD_NS  400000000ull /* the same where a loader tells of its own */
#define LOOK_SHARE    100          /* and a hundred times as long as a look takes */
#define RETRY_NS      1000000000ull
#define FREEZE_MS     200
#define RESTORERS_MAX 64
#define MANIFEST_NS   200000000ull
#define REMOTE_STEPS  100 /* of IDLE_MS: how long a thread in the agent may take for a system call */

struct session {
  const struct ct_record_options *options;
  struct ct_process process;
  struct ct_image image;
  bool image_live; /* an image is being recorded */
  uint32_t image_count;
  struct ct_modules modules;
  struct ct_drain *drain;
  struct ct_trace_writer *writer;
  pthread_mutex_t lock;
  struct ct_manifest manifest;
  bool manifest_is_old;
  uint64_t manifest_ns; /* when it was written */
  uint64_t next_look_ns;
  bool seen_before; /* a library, at the last look, with no word from the loader since */
  char *note;
};

/* The bell of the image being recorded; the SIGCHLD handler rings it. */
static uint32_t *volatile current_bell;
static volatile pid_t current_pid;

static void
on_child(int signal)
{
  (void)signal;
  uint32_t *bell = current_bell;
  if (bell != NULL) {
    __atomic_fetch_add(bell, 1, __ATOMIC_RELEASE);
  }
}

static void
on_forward(int signal)
{
  int saved = errno;
  if (current_pid > 0) {
    kill(current_pid, signal);
  }
  errno = saved;
}

struct signals {
  struct sigaction child, interrupt, quit, terminate, hangup;
};

static void
take_signals(struct signals *old)
{
  struct sigaction action = {.sa_handler = on_child};
  sigaction(SIGCHLD, &action, &old->child);
  action.sa_handler = SIG_IGN; /* the terminal sends these to the target too: it decides */
  sigaction(SIGINT, &action, &old->interrupt);
  sigaction(SIGQUIT, &action, &old->quit);
  action.sa_handler = on_forward;
  sigaction(SIGTERM, &action, &old->terminate);
  sigaction(SIGHUP, &action, &old->hangup);
}

static void
give_signals_back(const struct signals *old)
{
  sigaction(SIGCHLD, &old->child, NULL);
  sigaction(SIGINT, &old->interrupt, NULL);
  sigaction(SIGQUIT, &old->quit, NULL);
  sigaction(SIGTERM, &old->terminate, NULL);
  sigaction(SIGHUP, &old->hangup, NULL);
}

static uint64_t
now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
futex_wake(uint32_t *word)
{
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void
futex_wait_ms(uint32_t *word, uint32_t value, int ms)
{
  struct timespec wait = {ms / 1000, ms % 1000 * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &wait, NULL, 0);
}

static void
write_manifest(struct session *session, bool complete)
{
  const struct ct_drain_thread_info *threads;
  struct ct_drain_stats stats;
  pthread_mutex_lock(&session->lock);
  if (complete) {
    ct_trace_writer_sync(session->writer); /* so that the counts are of what is on the disk */
  }
  size_t count = ct_drain_threads(session->drain, &threads);
  ct_drain_stats(session->drain, &stats);
  json_t *json =
      ct_manifest_json(&session->manifest, ct_modules_json(&session->modules), threads, count, &stats, complete);
  ct_trace_writer_manifest(session->writer, json);
  json_decref(json);
  pthread_mutex_unlock(&session->lock);
  session->manifest_is_old = false;
  session->manifest_ns = now_ns();
}

/* While libraries come and go: now and then is enough. */
static void
refresh_manifest(struct session *session)
{
  if (session->manifest_is_old && now_ns() - session->manifest_ns > MANIFEST_NS) {
    uint64_t bytes = session->image_live ? ct_process_private_bytes(session->process.pid) : 0;
    session->manifest.private_bytes = bytes != 0 ? bytes : session->manifest.private_bytes;
    write_manifest(session, false);
  }
}

static struct ct_module_sinks
sinks(struct session *session)
{
  return (struct ct_module_sinks){session->writer, &session->lock, session->drain};
}

static void
add_note(struct session *session, const char *text)
{
  if (session->note[0] == '\0') {
    snprintf(session->note, sizeof(((struct ct_record_result *)0)->note), "%s", text);
  }
}

/* The process stands behind an exec: make the new image ready and let it go. */
static int
begin_image(struct session *session, struct ct_diag *diag)
{
  uint64_t begin = now_ns();
  struct ct_image_options options = {.ring_bytes = (uint64_t)session->options->ring_mib << 20,
                                     .lossless = session->options->lossless,
                                     .int3 = session->options->int3};
  char path[64], target[PATH_MAX];
  snprintf(path, sizeof(path), "/proc/%d/exe", (int)session->process.pid);
  ssize_t length = readlink(path, target, sizeof(target) - 1);
  target[length > 0 ? length : 0] = '\0';
  int code = 0;
  if (ct_process_seccomp(session->process.pid) != 0) {
    code = ct_fail(diag, CT_EUNSUPPORTED, "%s starts under a seccomp filter, which may forbid what recording needs",
                   target);
  }
  if (code == 0) {
    struct ct_diag why = {""};
    int unused;
    if (ct_program_check(path, &unused, &why) != 0) {
      code = ct_fail(diag, CT_EUNSUPPORTED, "%s cannot be recorded: not a readable 64-bit x86 program", target);
    }
  }
  const struct ct_plan *program = code == 0 ? ct_modules_program(&session->modules, session->process.pid) : NULL;
  if (program != NULL && program->uses_gs) {
    code = ct_fail(diag, CT_EUNSUPPORTED, "%s cannot be recorded: it uses the gs register itself, which hooks need",
                   target);
  } else if (program != NULL && program->translates) {
    code = ct_fail(diag, CT_EUNSUPPORTED,
                   "%s cannot be recorded: it translates code, some of its own too, and must find it as it is in the "
                   "file",
                   target);
  }
  options.no_stores = program != NULL && program->no_stores;
  if (code == 0) {
    code = ct_image_create(&session->process, &options, &session->image, diag);
  }
  ct_manifest_image(&session->manifest, session->process.pid, target, code == 0 ? NULL : diag->text);
  if (code != 0) {
    return code;
  }
  session->image_live = true;
  struct ct_remote remote = ct_image_remote(&session->image);
  struct ct_module_sinks to = sinks(session);
  code = ct_modules_update(&session->modules, session->image_count, &remote, &session->image.place, &to, diag);
  session->image_count++;
  if (code >= 0) {
    code = ct_drain_start(session->drain, session->image.ring, session->process.pid);
  }
  current_bell = &session->image.ring->control_bell;
  current_pid = session->process.pid;
  session->manifest.install_ns += now_ns() - begin;
  write_manifest(session, false);
  return code;
}

/* The image has ended, by exec or with the process. */
static void
end_image(struct session *session, bool by_exec)
{
  if (!session->image_live) {
    return;
  }
  ct_drain_stop(session->drain, by_exec ? session->process.pid : 0);
  static uint32_t no_bell;
  current_bell = &no_bell;
  ct_image_free(&session->image);
  ct_modules_forget(&session->modules);
  session->image_live = false;
}

/* ct_remote over a thread that waits in the agent, for the answer to the request whose state was pending. */
struct agent_remote {
  struct session *session;
  struct ct_request *request;
  uint32_t pending;
};

/* False when the thread has given up in the meantime. */
static bool
change_state(struct agent_remote *remote, enum ct_request_state code)
{
  uint32_t expected = remote->pending;
  uint32_t wanted = CT_REQ_WITH(expected, code);
  /* release: pairs with the agent's acquire of the state */
  bool changed = __atomic_compare_exchange_n(&remote->request->state, &expected, wanted, false, __ATOMIC_RELEASE,
                                             __ATOMIC_RELAXED);
  futex_wake(&remote->request->state);
  return changed;
}

static int
agent_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  struct agent_remote *remote = context;
  struct ct_request *request = remote->request;
  uint32_t *bell = &remote->session->image.ring->control_bell;
  request->number = (uint64_t)number;
  memcpy(request->arg, args, sizeof(request->arg));
  if (!change_state(remote, CT_REQ_SYSCALL)) {
    return CT_ESRCH;
  }
  for (int step = 0; step < REMOTE_STEPS; step++) {
    uint32_t rung = __atomic_load_n(bell, __ATOMIC_ACQUIRE);
    uint32_t state = __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
    if (state != CT_REQ_WITH(remote->pending, CT_REQ_SYSCALL)) {
      *result = request->result;
      return state == remote->pending ? 0 : CT_ESRCH;
    }
    if (ct_process_has_died(&remote->session->process)) {
      return CT_ESRCH;
    }
    futex_wait_ms(bell, rung, IDLE_MS);
  }
  return CT_ETIMEOUT;
}

static bool
still_waits(void *context)
{
  const struct agent_remote *remote = context;
  return __atomic_load_n(&remote->request->state, __ATOMIC_ACQUIRE) == remote->pending;
}

static void
answer_request(void *context)
{
  change_state(context, CT_REQ_DONE);
}

static void
serve_rendezvous(struct session *session, struct agent_remote *via)
{
  uint64_t begin = now_ns();
  struct ct_remote remote = {
      .process = &session->process, .syscall = agent_syscall, .context = via, .waits = still_waits};
  struct ct_module_sinks to = sinks(session);
  struct ct_diag diag = {""};
  int added =
      ct_modules_update(&session->modules, session->image_count - 1, &remote, &session->image.place, &to, &diag);
  answer_request(via);
  session->manifest.install_ns += now_ns() - begin;
  if (added < 0) {
    add_note(session, diag.text);
  }
  const struct ct_module *gs_user = added > 0 ? ct_modules_gs_user(&session->modules) : NULL;
  if (gs_user != NULL) {
    snprintf(diag.text, sizeof(diag.text), "%s uses the gs register itself, which hooks need; what follows is unsafe",
             gs_user->path);
    add_note(session, diag.text);
  }
  session->manifest_is_old |= added > 0;
  session->seen_before = false;
  refresh_manifest(session);
}

static int
frozen_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  return ct_frozen_syscall(context, number, args, result);
}

/* Libraries have come of which nobody told: hold the process while they are hooked. */
static void
hook_found_modules(struct session *session)
{
  struct ct_frozen frozen;
  struct ct_diag diag = {""};
  uint64_t restorers[RESTORERS_MAX];
  uint64_t begin = now_ns();
  size_t restorer_count = ct_modules_restorers(&session->modules, restorers, RESTORERS_MAX);
  int code = ct_process_freeze(&session->process, FREEZE_MS, &frozen, &diag);
  if (code == 0 && ct_frozen_find_pcs(&frozen, restorers, restorer_count) != 0) {
    ct_process_thaw(&frozen);
    code = CT_EIO;
  }
  if (code != 0) {
    session->next_look_ns = now_ns() + RETRY_NS;
    return;
  }
  struct ct_remote remote = {.process = &session->process,
                             .syscall = frozen_syscall,
                             .context = &frozen,
                             .pcs = frozen.pcs,
                             .pc_count = frozen.pc_count};
  struct ct_module_sinks to = sinks(session);
  int added =
      ct_modules_update(&session->modules, session->image_count - 1, &remote, &session->image.place, &to, &diag);
  ct_process_thaw(&frozen);
  session->manifest.install_ns += now_ns() - begin;
  session->manifest_is_old |= added > 0;
  if (added < 0) {
    add_note(session, diag.text);
  }
}

/*
 * A look at the mappings, now and then: for programs whose loader has no rendezvous, and for those that map code by
 * other means. What a loader with a rendezvous has just mapped it will tell of; so with one, only what is there at two
 * looks in a row with no word from the loader counts.
 */
static void
look_for_modules(struct session *session)
{
  uint64_t begin = now_ns();
  if (!session->image_live || begin < session->next_look_ns) {
    return;
  }
  bool told = ct_modules_have_rendezvous(&session->modules);
  bool changed = ct_modules_look(&session->modules, session->process.pid);
  uint64_t pause = told ? LOOK_TOLD_NS : LOOK_NS;
  uint64_t took = now_ns() - begin;
  session->next_look_ns = begin + (took * LOOK_SHARE > pause ? took * LOOK_SHARE : pause);
  if (changed && (!told || session->seen_before)) {
    hook_found_modules(session);
    changed = false;
  }
  session->seen_before = changed;
}

static bool
would_lose_privilege(struct session *session, uint64_t path_address)
{
  char path[PATH_MAX];
  char seen[PATH_MAX + 64];
  size_t length = 0;
  while (length + 1 < sizeof(path)) {
    size_t step = CT_PAGE_BYTES - (path_address + length) % CT_PAGE_BYTES;
    step = step < sizeof(path) - 1 - length ? step : sizeof(path) - 1 - length;
    if (ct_process_read(&session->process, path_address + length, path + length, step) != 0) {
      return false;
    }
    if (memchr(path + length, '\0', step) != NULL) {
      break;
    }
    length += step;
  }
  path[sizeof(path) - 1] = '\0';
  snprintf(seen, sizeof(seen), "/proc/%d/%s%s", (int)session->process.pid, path[0] == '/' ? "root" : "cwd/", path);
  return ct_program_is_privileged(seen) != 0;
}

static void
serve_exec(struct session *session, struct agent_remote *via, pid_t tid)
{
  struct ct_diag diag = {""};
  if (would_lose_privilege(session, via->request->arg[0])) {
    answer_request(via);
    add_note(session, "the program went on to a setuid or setgid program, which is not recorded");
    return;
  }
  int code = ct_process_follow_exec(&session->process, tid, answer_request, via, &diag);
  if (code == CT_ENOENT) {
    return; /* the exec failed; the program goes on */
  }
  if (code != 0) {
    if (diag.text[0] != '\0' && !session->process.dead) {
      add_note(session, diag.text);
    }
    return;
  }
  end_image(session, true);
  code = begin_image(session, &diag);
  if (code != 0 && !ct_process_reap(&session->process)) {
    add_note(session, diag.text);
  }
  if (code != 0) {
    end_image(session, false);
  }
  ct_process_release(&session->process);
}

/* True when there may be more. */
static bool
serve_requests(struct session *session)
{
  struct ct_ring_header *ring = session->image.ring;
  struct ct_slot *slots = (struct ct_slot *)((uint8_t *)ring + ring->slots_offset);
  for (uint32_t word = 0; word < CT_SLOT_COUNT / 64; word++) {
    /* acquire: pairs with the agent's release of the bit, behind the request */
    uint64_t bits = __atomic_exchange_n(&ring->request_map[word], 0, __ATOMIC_ACQUIRE);
    while (bits != 0) {
      uint32_t i = word * 64 + (uint32_t)__builtin_ctzll(bits);
      struct ct_request *request = &slots[i].request;
      bits &= bits - 1;
      struct agent_remote via = {session, request, __atomic_load_n(&request->state, __ATOMIC_ACQUIRE)};
      if (CT_REQ_CODE(via.pending) != CT_REQ_PENDING) {
        continue;
      }
      if (request->kind == CT_REQUEST_EXEC) {
        /* the others of this word wait for the next round, if there is one: an exec ends all other threads */
        __atomic_fetch_or(&ring->request_map[word], bits, __ATOMIC_RELEASE);
        serve_exec(session, &via, (pid_t)slots[i].tid);
        return true; /* the ring may be another one now */
      }
      serve_rendezvous(session, &via);
    }
  }
  return false;
}

/* Until the program has ended. */
static int
run(struct session *session, int *wait_status)
{
  uint32_t served = 0;
  const uint32_t *served_bell = NULL;
  for (;;) {
    int status;
    uint32_t *bell = current_bell;
    uint32_t rung = __atomic_load_n(bell, __ATOMIC_ACQUIRE);
    if (session->image_live && (rung != served || bell != served_bell)) {
      served = rung;
      served_bell = bell;
      if (serve_requests(session)) {
        served_bell = NULL;
        continue;
      }
    }
    if (session->process.dead) {
      return 0;
    }
    refresh_manifest(session);
    pid_t got = waitpid(session->process.pid, &status, WNOHANG | __WALL);
    if (got == session->process.pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
      *wait_status = status;
      return 0;
    }
    if (got < 0 && errno == ECHILD) {
      return CT_ESRCH;
    }
    if (bell == current_bell) {
      futex_wait_ms(bell, rung, ct_modules_have_rendezvous(&session->modules) ? IDLE_MS : LOOK_NS / 1000000);
      if (__atomic_load_n(bell, __ATOMIC_ACQUIRE) == rung) { /* nobody waits */
        ct_cache_store(session->modules.cache);
      }
      uint64_t begin = now_ns();
      look_for_modules(session);
      if (__atomic_load_n(bell, __ATOMIC_ACQUIRE) != rung) { /* somebody may wait since then: plans take their time */
        session->manifest.install_ns += now_ns() - begin;
      }
    }
  }
}

static void
remove_empty_trace(const char *directory, bool ours)
{
  static const char *const names[] = {"manifest.json", "functions.tsv"};
  char path[PATH_MAX];
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
    unlink(path);
  }
  if (ours) {
    rmdir(directory);
  }
}

static int
start(struct session *session, struct ct_record_result *result, struct ct_diag *diag)
{
  int code = ct_process_spawn(session->options->argv, &session->process, &result->exec_errno, diag);
  if (code != 0) {
    return code;
  }
  signal(SIGXFSZ, SIG_IGN); /* the target has its own disposition already */
  ct_manifest_start(&session->manifest, session->options, session->process.pid);
  code = begin_image(session, diag);
  if (code != 0) {
    ct_process_reap(&session->process);
    end_image(session, false);
    ct_process_close(&session->process, !session->process.dead);
    return code;
  }
  ct_process_release(&session->process);
  return 0;
}

int
ct_record(const struct ct_record_options *options, struct ct_record_result *result, struct ct_diag *diag)
{
  memset(result, 0, sizeof(*result));
  struct session session = {.options = options, .process = {.mem_fd = -1}, .note = result->note};
  session.modules.exclude = options->exclude;
  struct signals signals;
  static uint32_t no_bell;
  int code = ct_program_check(options->argv[0], &result->exec_errno, diag);
  if (code != 0) {
    return code;
  }
  session.modules.use_int3 = options->int3;
  session.modules.cache = options->no_cache ? NULL : ct_cache_open(NULL, NULL);
  session.manifest.cache = session.modules.cache;
  bool existed = access(options->directory, F_OK) == 0;
  code = ct_trace_writer_create(options->directory, BUFFER_BYTES, &session.writer, diag);
  if (code != 0) {
    ct_cache_close(session.modules.cache);
    return code;
  }
  pthread_mutex_init(&session.lock, NULL);
  code = ct_drain_create(session.writer, &session.lock, options->max_depth != 0 ? options->max_depth : UINT32_MAX,
                         &session.drain);
  if (code != 0) {
    ct_fail(diag, code, "out of memory");
  }
  current_bell = &no_bell;
  if (code == 0) {
    code = start(&session, result, diag);
  }
  bool started = code == 0 || session.process.dead; /* it may have been killed while it was held */
  if (started) {
    take_signals(&signals);
    code = session.process.dead ? 0 : run(&session, &result->wait_status);
    if (session.process.dead) {
      result->wait_status = session.process.wait_status;
    }
    result->ran = code == 0;
    end_image(&session, false);
    ct_manifest_end(&session.manifest, result->wait_status);
    write_manifest(&session, true);
    give_signals_back(&signals);
    struct ct_drain_stats stats;
    ct_drain_stats(session.drain, &stats);
    result->events = stats.events;
    result->dropped = stats.dropped;
    if (code != 0) {
      ct_fail(diag, code, "lost the program: somebody else has waited for it");
    }
  }
  current_pid = 0;
  current_bell = NULL;
  ct_process_close(&session.process, false);
  ct_drain_free(session.drain);
  ct_manifest_free(&session.manifest);
  int written = ct_trace_writer_close(session.writer, started && code == 0 ? diag : NULL);
  while (started && ct_cache_store(session.modules.cache)) {
  }
  ct_cache_close(session.modules.cache);
  ct_modules_free(&session.modules);
  pthread_mutex_destroy(&session.lock);
  if (!started) {
    remove_empty_trace(options->directory, !existed);
  }
  return code != 0 ? code : written;
}
