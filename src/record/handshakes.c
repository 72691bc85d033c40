/* SPDX-License-Identifier: MIT */
/*
 * Children that come into the agent in the image of a process that is recorded: what their sessions begin with. A
 * forked one has the hooks of the moment of its fork, which may have been changed since; and its parent may be gone.
 */
#include "record/session_internal.h"

#include "base/clock.h"
#include "base/test_point.h"
#include "process/ids.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINGER_NS    1000000000ull /* how long children of a process that is gone may take to their first hook */
#define HISTORY_MAX  64            /* changes within that time that are remembered */
#define FIND_NS      3000000000ull /* how long the process is looked for that waits ... */
#define FIND_STEP_NS 5000000ull    /* ... each time so long after the last one */
#define SWEEP_NS     1000000000ull /* between searches for pages of the dead */
#define SERVE_NS     50000000ull   /* at a time: to look for one is a walk over all processes */
#define START_ERR_NS 50000000ull   /* how exactly the time is known at which a process began */

/* ---- child start-up ---- */

void
ct_child_init_free(struct ct_child_init *child_init)
{
  if (child_init != NULL) {
    ct_modules_free(&child_init->modules);
    ct_agent_layout_free(&child_init->layout);
    if (child_init->ring_head != NULL) {
      munmap(child_init->ring_head, child_init->ring_head_bytes);
    }
    free(child_init);
  }
}

static int
copy_layout(const struct ct_agent_layout *layout, struct ct_agent_layout *copy)
{
  *copy = *layout;
  copy->stub_pages = malloc(layout->stub_page_count * sizeof(*layout->stub_pages) + 1);
  copy->stubs = malloc(layout->stub_count * sizeof(*layout->stubs) + 1);
  if (copy->stub_pages == NULL || copy->stubs == NULL) {
    free(copy->stub_pages);
    free(copy->stubs);
    memset(copy, 0, sizeof(*copy));
    return CT_ENOMEM;
  }
  if (layout->stub_page_count != 0) {
    memcpy(copy->stub_pages, layout->stub_pages, layout->stub_page_count * sizeof(*layout->stub_pages));
  }
  if (layout->stub_count != 0) {
    memcpy(copy->stubs, layout->stubs, layout->stub_count * sizeof(*layout->stubs));
  }
  return 0;
}

/* When the process began by CLOCK_MONOTONIC, at the earliest. The kernel gives it in ticks since the machine started.
 */
static uint64_t
began_ns(pid_t pid)
{
  uint64_t began = ct_process_start_time(pid) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
  uint64_t since = ct_clock_ns(CLOCK_BOOTTIME) - ct_clock_ns(CLOCK_MONOTONIC) + START_ERR_NS;
  return began > since ? began - since : 0;
}

/* Of those who come. */
struct parent {
  pid_t pid;
  struct ct_injected *image;
  struct ct_handshake_queue *handshake_queue;
  const struct ct_modules *modules;
  uint32_t generation;
  uint64_t hooks_version;
  const struct ct_hook_history *history;
};

/* What a forked child has, by the version that it reports. CT_ENOENT: that is too long ago. */
static int
inherit(const struct parent *parent, uint64_t version, struct ct_child_init *child_init)
{
  const struct ct_hook_history *history = parent->history;
  bool is_now = version == parent->hooks_version;
  while (!is_now && history != NULL && history->hooks_version != version) {
    history = history->earlier;
  }
  if (!is_now && history == NULL) {
    return CT_ENOENT;
  }
  child_init->generation = is_now ? parent->generation : history->generation;
  child_init->hooks_version = version;
  int code = ct_modules_clone(is_now ? parent->modules : &history->modules, &child_init->modules);
  return code != 0 ? code : copy_layout(is_now ? &parent->image->layout : &history->layout, &child_init->layout);
}

static struct ct_handshake *
page_of(const struct ct_injected *image, uint32_t index)
{
  return ct_ring_handshake(&image->parts, index);
}

/* Maps the head of the ring once more, until ct_child_init_free: the image may be gone before. */
static int
map_ring_head(struct ct_child_init *child_init, const struct ct_injected *image, uint32_t index)
{
  child_init->ring_head_bytes = CT_HANDSHAKES_OFFSET + (size_t)CT_HANDSHAKE_COUNT * CT_HANDSHAKE_BYTES;
  void *ring_head = mremap(image->ring, 0, child_init->ring_head_bytes, MREMAP_MAYMOVE);
  if (ring_head == MAP_FAILED) {
    return CT_ENOMEM;
  }
  child_init->ring_head = ring_head;
  child_init->page =
      (struct ct_handshake *)((uint8_t *)ring_head + ((uint8_t *)page_of(image, index) - (uint8_t *)image->ring));
  return 0;
}

/* Who it is that waits, as it has been found. */
struct caller {
  struct ct_handshake handshake; /* a copy */
  uint64_t page;                 /* its address there */
  pid_t pid, tid;
};

static int
make_child_init(const struct caller *caller, uint32_t index, const struct parent *parent, struct ct_child_init **out)
{
  struct ct_child_init *child_init = calloc(1, sizeof(*child_init));
  if (child_init == NULL) {
    return CT_ENOMEM;
  }
  child_init->kind = caller->handshake.kind == CT_HANDSHAKE_FORK ? CT_HANDSHAKE_FORK : CT_HANDSHAKE_EXEC;
  child_init->pid = caller->pid;
  child_init->tid = caller->tid;
  child_init->own_pid = (pid_t)(caller->handshake.owner >> 32);
  child_init->own_tid = (pid_t)caller->handshake.tid;
  child_init->owner = caller->handshake.owner;
  child_init->parent = parent->pid;
  child_init->handshake = caller->page;
  child_init->path = caller->handshake.path;
  child_init->since_ns = began_ns(child_init->pid);
  *out = child_init;
  int code = map_ring_head(child_init, parent->image, index);
  return code == 0 && child_init->kind == CT_HANDSHAKE_FORK
             ? inherit(parent, caller->handshake.hooks_version, child_init)
             : code;
}

static void
answer(struct ct_handshake *handshake, enum ct_handshake_state state)
{
  uint32_t pending = CT_HANDSHAKE_PENDING;
  /* release: pairs with the agent's acquire */
  __atomic_compare_exchange_n(&handshake->state, &pending, state, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  session_wake(&handshake->state);
}

void
child_init_answer(struct ct_child_init *child_init, enum ct_handshake_state state)
{
  if (__atomic_load_n(&child_init->page->owner, __ATOMIC_ACQUIRE) == child_init->owner) {
    answer(child_init->page, state);
  }
}

/* Somebody who waits for a page may have this one. */
static void
free_page(struct ct_ring_header *ring, struct ct_handshake *handshake, uint64_t owner)
{
  if (__atomic_compare_exchange_n(&handshake->owner, &owner, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    __atomic_fetch_add(&ring->handshake_doorbell, 1, __ATOMIC_RELEASE);
    session_wake(&ring->handshake_doorbell);
  }
}

void
child_init_release_page(struct ct_child_init *child_init)
{
  __atomic_store_n(&child_init->page->state, CT_HANDSHAKE_NONE, __ATOMIC_RELAXED);
  free_page(child_init->ring_head, child_init->page, child_init->owner);
}

/* ---- who it is ---- */

enum verdict { VERDICT_NO, VERDICT_PERHAPS, VERDICT_YES };

/* What /proc/PID/task/TID/syscall says: "running", or the number of the call and its arguments. */
static enum verdict
waits_at(pid_t pid, pid_t tid, uint64_t word)
{
  char path[64], text[256] = "";
  snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
  FILE *file = fopen(path, "re");
  size_t size = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
  if (file != NULL) {
    fclose(file);
  }
  text[size] = '\0';
  long number;
  unsigned long long first;
  if (sscanf(text, "%ld 0x%llx", &number, &first) != 2) {
    return VERDICT_PERHAPS; /* on its way there; or this kernel does not tell */
  }
  return number == SYS_futex && first == word ? VERDICT_YES : VERDICT_NO;
}

struct search {
  struct caller *caller;
  uint64_t challenge;
  enum verdict best;
  bool found;
};

/*
 * A process with the id that the caller has by itself, that has the page, and whose thread waits on it. What it says
 * of itself is only where to look: another namespace has the same numbers, and memory can be written to.
 */
static enum verdict
is_caller(struct search *search, pid_t pid)
{
  struct caller *caller = search->caller;
  char path[64];
  uint64_t seen = 0;
  if (ct_process_own_id(pid, NULL) != (pid_t)(caller->handshake.owner >> 32)) {
    return VERDICT_NO;
  }
  pid_t tid = ct_thread_by_own_id(pid, (pid_t)caller->handshake.tid);
  ct_process_path(pid, "mem", path, sizeof(path));
  int fd = tid != 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t got =
      fd >= 0 ? pread(fd, &seen, sizeof(seen), (off_t)(caller->page + offsetof(struct ct_handshake, challenge))) : -1;
  if (fd >= 0) {
    close(fd);
  }
  if (got != (ssize_t)sizeof(seen) || seen != search->challenge) {
    return VERDICT_NO;
  }
  caller->pid = pid;
  caller->tid = tid;
  return waits_at(pid, tid, caller->page + offsetof(struct ct_handshake, state));
}

static bool
try_process(void *context, pid_t pid)
{
  struct search *search = context;
  if (!search->found) {
    enum verdict verdict = is_caller(search, pid);
    search->best = verdict > search->best ? verdict : search->best;
    search->found = verdict == VERDICT_YES;
  }
  return search->found;
}

/* PERHAPS: it must be looked for again. */
static enum verdict
find_caller(const struct parent *parent, struct ct_handshake *handshake, struct caller *caller)
{
  struct search search = {.caller = caller};
  bool elsewhere = true;
  pid_t same = (pid_t)(caller->handshake.owner >> 32);
  if (getrandom(&search.challenge, sizeof(search.challenge), GRND_NONBLOCK) != (ssize_t)sizeof(search.challenge)) {
    search.challenge = ct_now_ns();
  }
  __atomic_store_n(&handshake->challenge, search.challenge, __ATOMIC_SEQ_CST);
  if (ct_process_own_id(same, &elsewhere) == same && !elsewhere && is_caller(&search, same) != VERDICT_NO) {
    return VERDICT_YES; /* as nearly always */
  }
  ct_process_descendants(parent->pid, try_process, &search);
  if (!search.found) {
    ct_process_find(try_process, &search);
  }
  return search.best;
}

/* ---- answers ---- */

static void
refuse(struct ct_process_tree *tree, const struct parent *parent, const struct caller *caller, const char *why)
{
  struct ct_child_init child_init = {.kind = caller->handshake.kind == CT_HANDSHAKE_FORK ? CT_HANDSHAKE_FORK
                                                                                         : CT_HANDSHAKE_EXEC,
                                     .pid = caller->pid,
                                     .parent = parent->pid};
  tree_list_child(tree, &child_init, NULL, why);
}

/* A session for the caller, or the reason why not. */
static void
follow(struct ct_process_tree *tree, const struct parent *parent, const struct caller *caller, uint32_t index)
{
  struct ct_child_init *child_init = NULL;
  const char *why = "out of memory";
  int code = make_child_init(caller, index, parent, &child_init);
  if (code == 0) {
    tree_count_live(tree, 1);
    code = tree_add_session(tree, child_init);
    why = code == CT_ERANGE ? "as many children as can be are followed at that time"
                            : "there was no memory for its session, or no thread";
    if (code != 0) {
      tree_count_live(tree, -1);
    }
  } else if (code == CT_ENOENT) {
    why = "what is traced was changed after it had been forked, and long before its first hook";
  }
  if (code != 0) {
    ct_child_init_free(child_init);
    if (!tree_is_ending(tree)) {
      refuse(tree, parent, caller, why);
    }
    answer(page_of(parent->image, index), CT_HANDSHAKE_REFUSED);
  }
}

/* Somebody has come into the agent in this image who is not its process. False: he is to be looked for again. */
static bool
receive(struct ct_process_tree *tree, const struct parent *parent, uint32_t index)
{
  struct ct_handshake *handshake = page_of(parent->image, index);
  struct ct_caller *known = &parent->handshake_queue->callers[index];
  struct caller caller = {.page =
                              parent->image->layout.ring + CT_HANDSHAKES_OFFSET + (uint64_t)index * CT_HANDSHAKE_BYTES};
  if (__atomic_load_n(&handshake->state, __ATOMIC_ACQUIRE) != CT_HANDSHAKE_PENDING) {
    return true;
  }
  memcpy(&caller.handshake, handshake, sizeof(caller.handshake));
  if (known->owner != caller.handshake.owner) {
    *known = (struct ct_caller){.owner = caller.handshake.owner, .since_ns = ct_now_ns()};
  }
  if (find_caller(parent, handshake, &caller) == VERDICT_YES) {
    known->pid = caller.pid;
    follow(tree, parent, &caller, index);
    return true;
  }
  if (ct_now_ns() - known->since_ns < FIND_NS) {
    return false;
  }
  caller.pid = (pid_t)(caller.handshake.owner >> 32);
  refuse(tree, parent, &caller,
         "its process cannot be found (by this number it calls itself, in another pid namespace)");
  answer(handshake, CT_HANDSHAKE_REFUSED);
  return true;
}

static bool
has_own_id(void *context, pid_t pid)
{
  return ct_process_own_id(pid, NULL) == *(const pid_t *)context;
}

/* Handshake pages of children that were killed there are free again. */
static void
free_pages(const struct parent *parent)
{
  uint64_t now = ct_now_ns();
  struct ct_handshake_queue *handshake_queue = parent->handshake_queue;
  handshake_queue->swept_ns = now;
  for (uint32_t n = 0; n < CT_HANDSHAKE_COUNT && (n == 0 || ct_now_ns() - now < SERVE_NS); n++) {
    uint32_t i = handshake_queue->sweep_next++ % CT_HANDSHAKE_COUNT;
    struct ct_handshake *handshake = page_of(parent->image, i);
    struct ct_caller *known = &handshake_queue->callers[i];
    uint64_t owner = __atomic_load_n(&handshake->owner, __ATOMIC_ACQUIRE);
    if (known->owner != owner) { /* since now, with an id that may be another one outside */
      *known = (struct ct_caller){.owner = owner, .since_ns = now};
    }
    if (owner == 0) {
      continue;
    }
    pid_t own = (pid_t)(owner >> 32);
    bool is_gone = known->pid != 0 ? ct_process_state(known->pid) == 0
                                   : now - known->since_ns > SWEEP_NS && ct_process_find(has_own_id, &own) == 0;
    if (is_gone) {
      free_page(parent->image->ring, handshake, owner);
    }
  }
}

/* last: everybody is heard, nobody comes any more. */
static void
serve(struct ct_process_tree *tree, const struct parent *parent, bool last)
{
  struct ct_handshake_queue *handshake_queue = parent->handshake_queue;
  /* sequentially consistent: pairs with the agent's of the bit, after the visit */
  uint64_t bits = __atomic_exchange_n(&parent->image->ring->handshake_map, 0, __ATOMIC_SEQ_CST);
  uint64_t now = ct_now_ns(), later = 0;
  if (handshake_queue->later != 0 && now >= handshake_queue->next_ns) {
    bits |= handshake_queue->later;
    handshake_queue->later = 0;
  }
  uint64_t left = bits;
  for (uint32_t n = 0; n < CT_HANDSHAKE_COUNT && (last || left == bits || ct_now_ns() - now < SERVE_NS); n++) {
    uint32_t index = handshake_queue->serve_next++ % CT_HANDSHAKE_COUNT;
    if ((left >> index & 1) != 0) {
      later |= receive(tree, parent, index) ? 0 : 1ull << index;
      left &= ~(1ull << index);
    }
  }
  later |= left; /* not come to */
  handshake_queue->later |= later;
  handshake_queue->next_ns = later != 0 ? ct_now_ns() + FIND_STEP_NS : handshake_queue->next_ns;
  if (bits != 0 || (now - handshake_queue->swept_ns > SWEEP_NS &&
                    __atomic_load_n(&parent->image->ring->forks, __ATOMIC_RELAXED) != 0)) {
    free_pages(parent);
  }
}

static struct parent
parent_of(struct ct_session *session)
{
  return (struct parent){session->target.process.pid, &session->recording.image, &session->node.handshake_queue,
                         &session->recording.modules, session->node.generation,  session->node.hooks_version,
                         session->node.history};
}

void
session_serve_handshakes(struct ct_session *session)
{
  struct parent parent = parent_of(session);
  if (session->node.tree != NULL) {
    serve(session->node.tree, &parent, false);
  }
}

void
session_turn_away(struct ct_session *session)
{
  struct ct_ring_header *ring = session->recording.image.ring;
  if (session->node.tree == NULL || ring == NULL) {
    return;
  }
  /* Who comes after this sees it; who came before has its bit set. */
  __atomic_store_n(&ring->handshakes_end, 1, __ATOMIC_SEQ_CST);
  uint64_t bits = __atomic_exchange_n(&ring->handshake_map, 0, __ATOMIC_SEQ_CST) | session->node.handshake_queue.later;
  session->node.handshake_queue.later = 0;
  for (; bits != 0; bits &= bits - 1) {
    answer(page_of(&session->recording.image, (uint32_t)__builtin_ctzll(bits)), CT_HANDSHAKE_REFUSED);
  }
  __atomic_fetch_add(&ring->handshake_doorbell, 1, __ATOMIC_RELEASE);
  session_wake(&ring->handshake_doorbell);
}

/* ---- what was before a change ---- */

static void
free_history(struct ct_hook_history *history)
{
  while (history != NULL) {
    struct ct_hook_history *earlier = history->earlier;
    ct_modules_free(&history->modules);
    ct_agent_layout_free(&history->layout);
    free(history);
    history = earlier;
  }
}

void
session_clear_history(struct ct_session *session)
{
  free_history(session->node.history);
  session->node.history = NULL;
}

/* Those from which nobody comes any more. */
void
session_trim_history(struct ct_session *session)
{
  uint64_t now = ct_now_ns();
  struct ct_hook_history **link = &session->node.history;
  for (size_t n = 0; *link != NULL && n < HISTORY_MAX && (*link)->until_ns > now; n++) {
    link = &(*link)->earlier;
  }
  free_history(*link);
  *link = NULL;
}

int
session_push_history(struct ct_session *session)
{
  session_trim_history(session);
  struct ct_hook_history *history = calloc(1, sizeof(*history));
  if (history == NULL) {
    return CT_ENOMEM;
  }
  history->modules.plans = session->recording.modules.plans;
  history->hooks_version = session->node.hooks_version;
  history->generation = session->node.generation;
  history->until_ns = UINT64_MAX;
  int code = ct_modules_clone(&session->recording.modules, &history->modules);
  if (code == 0) {
    code = copy_layout(&session->recording.image.layout, &history->layout);
  }
  if (code != 0) {
    free_history(history);
    return code;
  }
  history->earlier = session->node.history;
  session->node.history = history;
  return 0;
}

void
session_date_history(struct ct_session *session)
{
  if (session->node.history != NULL) {
    session->node.history->until_ns = ct_now_ns() + ct_test_duration_ns("CONTRAIL_TEST_LINGER_MS", LINGER_NS);
  }
}

/* ---- children that come late ---- */

void
session_keep_lingering_image(struct ct_session *session)
{
  struct ct_lingering_image *kept = &session->node.lingering;
  struct ct_ring_header *ring = session->recording.image.ring;
  if (session->node.tree == NULL || __atomic_load_n(&ring->forks, __ATOMIC_RELAXED) == 0) {
    return;
  }
  session_serve_lingering_image(session, true); /* of the image before */
  if (ct_modules_clone(&session->recording.modules, &kept->modules) != 0) {
    ct_modules_free(&kept->modules);
    return;
  }
  kept->modules.plans = session->recording.modules.plans;
  kept->image = session->recording.image;
  kept->handshake_queue = session->node.handshake_queue;
  memset(&session->recording.image, 0, sizeof(session->recording.image));
  kept->parent = session->target.process.pid;
  kept->generation = session->node.generation;
  kept->hooks_version = session->node.hooks_version;
  kept->history = session->node.history;
  session->node.history = NULL;
  kept->until_ns = ct_now_ns() + LINGER_NS;
  pthread_mutex_lock(&session->sync.guard);
  session->node.image_lingers = true;
  pthread_mutex_unlock(&session->sync.guard);
  /* The events have been read; what children need is the head. */
  const struct ct_ring_parts *parts = &kept->image.parts;
  madvise(parts->segments, parts->bytes - parts->segments_offset, MADV_REMOVE);
}

void
session_serve_lingering_image(struct ct_session *session, bool now)
{
  struct ct_lingering_image *kept = &session->node.lingering;
  if (kept->image.ring == NULL) {
    return;
  }
  struct parent parent = {kept->parent,     &kept->image,        &kept->handshake_queue, &kept->modules,
                          kept->generation, kept->hooks_version, kept->history};
  serve(session->node.tree, &parent, false);
  if (now || ct_now_ns() > kept->until_ns) {
    __atomic_store_n(&kept->image.ring->closed, 1, __ATOMIC_RELEASE);
    serve(session->node.tree, &parent, true);
    tree_count_lost(session->node.tree, __atomic_load_n(&kept->image.ring->handshakes_lost, __ATOMIC_RELAXED));
    ct_injected_free(&kept->image);
    ct_modules_free(&kept->modules);
    free_history(kept->history);
    memset(kept, 0, sizeof(*kept));
    pthread_mutex_lock(&session->sync.guard);
    session->node.image_lingers = false;
    pthread_cond_broadcast(&session->sync.changed);
    pthread_mutex_unlock(&session->sync.guard);
  }
}
