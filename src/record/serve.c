/* SPDX-License-Identifier: MIT */
/*
 * What a running process asks of its session, by requests of the agent (start-up libraries, dlopen, exec), and what it
 * does not tell: code that it maps in other ways. See session_internal.h.
 */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/rooted.h"
#include "base/test_point.h"
#include "hook/undo.h"
#include "process/ids.h"
#include "record/crash.h"
#include "record/program.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define THE_GS_REGISTER    "the gs register itself"
#define IDLE_MS            200
#define CHECK_NS           50000000ull  /* between looks for libraries that no loader reports */
#define CHECK_PUBLISHED_NS 400000000ull /* the same where a loader reports its own */
#define CHECK_SHARE        100          /* and a hundred times as long as a check takes */
#define CHECK_SHARE_BUDGET 4000         /* under a budget, where a loader reports its own, so many times as long, ... */
#define CHECK_BUDGET_NS    2000000000ull /* ... up to that */
#define RETRY_NS           1000000000ull
#define SERVE_NS           50000000ull /* of requests, before it is looked whether somebody wants something */
#define CRASHES_MAX        64          /* of an image that are looked at: no program has so many */
#define REMOTE_STEPS       100         /* of IDLE_MS: how long a thread in the agent may take for a system call ... */
#define REMOTE_STEPS_ASKED 5           /* ... and when somebody has given the session a command */

/* ct_remote over a thread that waits in the agent, for the answer to the request whose state was pending. */
struct agent_remote {
  struct ct_session *session;
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
  session_wake(&remote->request->state);
  return changed;
}

static int
agent_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  struct agent_remote *remote = context;
  struct ct_request *request = remote->request;
  uint32_t *doorbell = &remote->session->recording.image.ring->control_doorbell;
  request->number = (uint64_t)number;
  memcpy(request->arg, args, sizeof(request->arg));
  if (!change_state(remote, CT_REQ_SYSCALL)) {
    return CT_ESRCH;
  }
  for (int step = 0; step < REMOTE_STEPS; step++) {
    uint32_t rung = __atomic_load_n(doorbell, __ATOMIC_ACQUIRE);
    uint32_t state = __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
    if (state != CT_REQ_WITH(remote->pending, CT_REQ_SYSCALL)) {
      *result = request->result;
      return state == remote->pending ? 0 : CT_ESRCH;
    }
    if (ct_process_has_died(&remote->session->target.process)) {
      return CT_ESRCH;
    }
    if (step > REMOTE_STEPS_ASKED && session_has_commands(remote->session)) {
      return CT_ETIMEOUT; /* the end, perhaps: that does not wait for a thread that does not answer */
    }
    session_wait_ms(doorbell, rung, IDLE_MS);
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

/*
 * Somebody is about to take gs, or memory of ours, which hooks need: they go before, and nothing more is recorded. A
 * thread that waits for that goes on once they are out. The trace ends with the process.
 */
static void
leave(struct ct_session *session, const struct ct_undo_wait *wait, const char *who, const char *what)
{
  struct ct_diag diag = {""}, text;
  snprintf(text.text, sizeof(text.text), "%s %s, which hooks need: recording ended there", who, what);
  session_note(session, text.text);
  if (session_leave(session, wait, &diag) != 0) {
    session_note(session, diag.text);
  }
  session->recording.manifest_is_old = true;
}

static void
say_it_is_left(void *context)
{
  struct ct_ring_header *ring = context;
  /* release: pairs with the agent's acquire */
  __atomic_store_n(&ring->leave, CT_LEAVE_DONE, __ATOMIC_RELEASE);
  session_wake(&ring->leave);
}

/* So that it does not wait for what does not come: it does what it can by itself. */
static void
say_it_is_not(void *context)
{
  struct ct_ring_header *ring = context;
  /* release: pairs with the agent's acquire */
  __atomic_store_n(&ring->leave, CT_LEAVE_REFUSED, __ATOMIC_RELEASE);
  session_wake(&ring->leave);
}

/* A module that may take gs unseen has come. */
static bool
gs_is_in_danger(struct ct_session *session, struct agent_remote *via)
{
  char who[128];
  const struct ct_module *module = ct_modules_gs_danger(&session->recording.modules);
  if (module == NULL) {
    return false;
  }
  const char *name = strrchr(module->path, '/');
  snprintf(who, sizeof(who), "%.100s may use", name != NULL ? name + 1 : module->path);
  struct ct_undo_wait wait = {answer_request, answer_request, via, 0};
  leave(session, via != NULL ? &wait : NULL, who, THE_GS_REGISTER);
  return true;
}

static void
serve_rendezvous(struct ct_session *session, struct agent_remote *via)
{
  uint64_t begin = ct_now_ns();
  struct ct_remote remote = {
      .process = &session->target.process, .syscall = agent_syscall, .context = via, .waits = still_waits};
  struct ct_module_sinks to = session_sinks(session);
  struct ct_diag diag = {""};
  int added = ct_modules_update(&session->recording.modules, session->recording.image_count - 1, &remote,
                                &session->recording.image.layout, &to, &diag);
  ct_modules_publish(&session->recording.modules, &to);
  if (added > 0 && gs_is_in_danger(session, via)) {
    return;
  }
  bool is_listed = session_list_modules(session);
  answer_request(via);
  session->recording.manifest.install_ns += ct_now_ns() - begin;
  if (added < 0) {
    session_note(session, diag.text);
  }
  session->recording.manifest_is_old |= added > 0 && !is_listed;
  session->recording.seen_before = false;
  session_refresh_manifest(session);
}

/* Libraries have come that nobody reported: stops the process while they are hooked. */
static void
hook_found_modules(struct ct_session *session)
{
  struct ct_diag diag = {""};
  uint64_t begin = ct_now_ns();
  if (session_stop_threads(session, NULL) != 0) {
    session->recording.next_check_ns = ct_now_ns() + RETRY_NS;
    return;
  }
  struct ct_remote remote = session_stopped_remote(session);
  struct ct_module_sinks to = session_sinks(session);
  int added = ct_modules_update(&session->recording.modules, session->recording.image_count - 1, &remote,
                                &session->recording.image.layout, &to, &diag);
  ct_modules_publish(&session->recording.modules, &to);
  bool is_listed = session_list_modules(session); /* the loader may report them yet: then none is new */
  session_resume_threads(session);
  ct_test_point("modules-found");
  session->recording.manifest.install_ns += ct_now_ns() - begin;
  session->recording.manifest_is_old |= added > 0 && !is_listed;
  if (added < 0) {
    session_note(session, diag.text);
  }
  if (added > 0) {
    gs_is_in_danger(session, NULL);
  }
}

/*
 * A check of the mappings, now and then: for programs whose loader has no rendezvous, and for those that map code by
 * other means. What a loader with a rendezvous has just mapped it will report; so with one, only what is there at two
 * looks in a row with no word from the loader counts.
 */
void
session_check_for_modules(struct ct_session *session)
{
  uint64_t begin = ct_now_ns();
  if (!session->recording.image_live || begin < session->recording.next_check_ns) {
    return;
  }
  bool has_rendezvous = ct_modules_have_rendezvous(&session->recording.modules);
  bool changed = ct_modules_check(&session->recording.modules, session->target.process.pid);
  uint64_t pause = has_rendezvous ? CHECK_PUBLISHED_NS : CHECK_NS;
  uint64_t took = ct_now_ns() - begin;
  pause = took * CHECK_SHARE > pause ? took * CHECK_SHARE : pause;
  if (session->budget != NULL && has_rendezvous && pause < CHECK_BUDGET_NS && took * CHECK_SHARE_BUDGET > pause) {
    pause = took * CHECK_SHARE_BUDGET < CHECK_BUDGET_NS ? took * CHECK_SHARE_BUDGET : CHECK_BUDGET_NS;
  }
  session->recording.next_check_ns = begin + pause;
  if (changed && (!has_rendezvous || session->recording.seen_before)) {
    hook_found_modules(session);
    changed = false;
  }
  session->recording.seen_before = changed;
}

bool
session_exec_loses_privilege(struct ct_session *session, uint64_t path_address)
{
  char path[PATH_MAX];
  char rest[PATH_MAX + 8], seen[PATH_MAX + 64];
  size_t length = 0;
  while (length + 1 < sizeof(path)) {
    size_t step = CT_PAGE_BYTES - (path_address + length) % CT_PAGE_BYTES;
    step = step < sizeof(path) - 1 - length ? step : sizeof(path) - 1 - length;
    if (ct_process_read(&session->target.process, path_address + length, path + length, step) != 0) {
      return false;
    }
    if (memchr(path + length, '\0', step) != NULL) {
      break;
    }
    length += step;
  }
  path[sizeof(path) - 1] = '\0';
  snprintf(rest, sizeof(rest), "%s%s", path[0] == '/' ? "root" : "cwd/", path);
  ct_process_path(session->target.process.pid, rest, seen, sizeof(seen));
  int fd = ct_rooted_open(seen, O_PATH | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  snprintf(seen, sizeof(seen), "/proc/self/fd/%d", fd);
  bool is = ct_program_is_privileged(seen) != 0;
  close(fd);
  return is;
}

static void
serve_exec(struct ct_session *session, struct agent_remote *via, pid_t own_tid)
{
  struct ct_diag diag = {""};
  if (session_exec_loses_privilege(session, via->request->arg[0])) {
    answer_request(via);
    session_note(session, "the program went on to a setuid or setgid program, which is not recorded");
    return;
  }
  pid_t tid = ct_thread_by_own_id(session->target.process.pid, own_tid);
  if (tid == 0) { /* it has been killed */
    answer_request(via);
    return;
  }
  session_bound_waits(session);
  int code = ct_process_follow_exec(&session->target.process, tid, answer_request, via, &diag);
  if (code == CT_ENOENT) {
    return; /* the exec failed; the program goes on */
  }
  if (code != 0) {
    if (diag.text[0] != '\0' && !session->target.process.dead) {
      session_note(session, diag.text);
    }
    return;
  }
  session_end_image(session, true);
  code = session_begin_image(session, &diag);
  if (session->node.is_child) {
    ct_manifest_command(&session->recording.manifest, session->target.process.pid);
  }
  if (code != 0 && !ct_process_reap(&session->target.process)) {
    session_note(session, diag.text);
  }
  if (code != 0) {
    session_end_image(session, false);
  }
  ct_process_release(&session->target.process);
}

/* A thread has got a signal that will end the process. */
static void
serve_crash(struct ct_session *session)
{
  struct ct_diag diag = {""};
  const struct ct_crash *crash = session->recording.image.parts.crash;
  session_note_signal(session, (int)crash->signal, true, crash->tsc, crash->tid);
  if (++session->recording.crashes > CRASHES_MAX) {
    ct_crash_dismiss(&session->recording.image.parts);
    return;
  }
  if (ct_crash_serve(&session->target.process, &session->recording.image.parts, &session->recording.image.layout,
                     &session->recording.modules, session->recording.writer, session->recording.drain, &diag) != 0) {
    session_note(session, diag.text);
  }
}

/* True when there may be more. */
bool
session_serve_requests(struct ct_session *session)
{
  if (ct_crash_is_pending(&session->recording.image.parts)) {
    serve_crash(session);
    return true;
  }
  struct ct_ring_header *ring = session->recording.image.ring;
  if (__atomic_load_n(&ring->leave, __ATOMIC_ACQUIRE) == CT_LEAVE_PENDING) {
    struct ct_undo_wait wait = {say_it_is_left, say_it_is_not, ring,
                                __atomic_load_n(&ring->leave_frame, __ATOMIC_RELAXED)};
    leave(session, &wait, wait.frame != 0 ? "the program was about to map or change" : "the program was about to set",
          wait.frame != 0 ? "memory of contrail's own" : THE_GS_REGISTER);
    return false;
  }
  struct ct_slot *slots = session->recording.image.parts.slots;
  uint64_t begin = ct_now_ns();
  for (uint32_t word = 0; word < CT_SLOT_COUNT / 64; word++) {
    /* acquire: pairs with the agent's release of the bit, after the request */
    uint64_t bits = __atomic_exchange_n(&ring->request_map[word], 0, __ATOMIC_ACQUIRE);
    while (bits != 0) {
      uint32_t i = word * 64 + (uint32_t)__builtin_ctzll(bits);
      struct ct_request *request = &slots[i].request;
      bits &= bits - 1;
      struct agent_remote via = {session, request, __atomic_load_n(&request->state, __ATOMIC_ACQUIRE)};
      if (CT_REQ_CODE(via.pending) != CT_REQ_PENDING) {
        continue;
      }
      uint32_t kind = __atomic_load_n(&request->kind, __ATOMIC_RELAXED); /* once: it can change at any time */
      if (kind == CT_REQUEST_EXEC) {
        /* the others of this word wait for the next round, if there is one: an exec ends all other threads */
        __atomic_fetch_or(&ring->request_map[word], bits, __ATOMIC_RELEASE);
        serve_exec(session, &via, (pid_t)slots[i].tid);
        return true; /* the ring may be another one now */
      }
      if (kind == CT_REQUEST_ITRACE) {
        session_serve_itrace(session, i, request);
        answer_request(&via);
      } else {
        serve_rendezvous(session, &via);
      }
      if (!session->recording.image_live) {
        return false; /* the ring is gone */
      }
      if (ct_now_ns() - begin > SERVE_NS) { /* a process can ask without end */
        __atomic_fetch_or(&ring->request_map[word], bits, __ATOMIC_RELEASE);
        return true;
      }
    }
  }
  return false;
}
