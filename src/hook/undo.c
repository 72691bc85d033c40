/* SPDX-License-Identifier: MIT */
/*
 * Undoing an image; see undo.h. The steps, the process being held:
 *
 *   1. The ring is closed: whoever waits in the agent goes on. Signals have the program's own dispositions again.
 *   2. Patches are taken back, from the lists that lie behind each region's trampolines. Not one on which a thread
 *      stands that is a jump to a jump: that one has its turn later. And not yet those by which unwinders are told of
 *      trampolines.
 *   3. Frames that would return through trampolines get their true return addresses: for each page of a return store
 *      that was ever written, each entry whose slot holds an address of ours. That finds all of them, also on stacks
 *      that no thread is on now.
 *   4. A thread that was in an unwinder may have an address of a trampoline in the unwinder's own frames, which are
 * left alone; one that was in our code may be about to put one on its stack. The process runs for a moment, is held
 *      again, until each of them has been seen elsewhere. From then on it cannot meet one again.
 *   5. The last patches go, and with them what they left on stacks, until nobody is in our code.
 *   6. gs is 0 again, in all threads. Text whose pages are now as in the file becomes the file's own pages again.
 *   7. All of ours is unmapped, the ring last, so that it can be found as long as there is anything.
 *
 * A signal handler above a place in our code may take as long as it likes. Then the rest is left out.
 *
 * If we die on the way the process goes on with what is left, and the next one to come finishes: each step can be done
 * twice. What has been unmapped is out of the lists before, since its addresses may become somebody else's, and pending
 * meanwhile (struct ct_inside), as are mappings that are being made.
 */
#include "hook/undo_internal.h"

#include "base/clock.h"
#include "hook/room.h"
#include "hook/signals.h"
#include "hook/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define STEP_NS        200000 /* in which threads may leave our code */
#define STEP_MAX_NS    20000000
#define RUN_MAX_NS     200000000
#define STILL_NS       60000000u /* where a thread waits for so long it is not unwinding */
#define UNWINDER_BYTES 16384     /* of a stack, in which an unwinder's frame would lie */
#define FRAME_BYTES    4096      /* more than such a frame has */
#define THREADS_MAX    65536
#define HOLD_MS        1000 /* to stop all threads */
#define PATCH_MAX      (64u << 20)
#define BACK_BYTES     8192 /* of a stack that are searched for a return into the agent */

/* The region's patches, which lie behind its trampolines. A region that is not whole has none in place. */
static int
read_region(const struct undo *undo, const struct ct_region *listed, struct region *region)
{
  struct ct_region_head head;
  *region = (struct region){.start = listed->lo};
  if (ct_process_read(process_of(undo), listed->lo, &head, sizeof(head)) != 0 || head.patches < listed->lo ||
      head.patches - listed->lo > head.region_bytes || head.patch_count > PATCH_MAX / sizeof(struct ct_patch)) {
    return CT_EFORMAT;
  }
  region->bytes = head.region_bytes;
  region->patches = malloc(head.patch_count * sizeof(struct ct_patch) + 1);
  if (region->patches == NULL) {
    return CT_ENOMEM;
  }
  region->patch_count = head.patch_count;
  return ct_process_read(process_of(undo), head.patches, region->patches, head.patch_count * sizeof(struct ct_patch));
}

static int
read_all(struct undo *undo)
{
  undo->config = malloc(sizeof(*undo->config));
  undo->regions = calloc(CT_REGION_MAX, sizeof(*undo->regions));
  if (undo->config == NULL || undo->regions == NULL) {
    return CT_ENOMEM;
  }
  uint64_t at = undo->found->header->inside.config;
  if (at == 0) {
    memset(undo->config, 0, sizeof(*undo->config)); /* it was not ready, or is gone already */
    return 0;
  }
  int code = ct_process_read(process_of(undo), at, undo->config, sizeof(*undo->config));
  uint64_t count = undo->config->region_count < CT_REGION_MAX ? undo->config->region_count : CT_REGION_MAX;
  for (size_t i = 0; i < count && code == 0; i++) {
    const struct ct_region *listed = &undo->config->regions[i];
    if (listed->desc_count == 0 || listed->hi == 0) {
      continue;
    }
    struct region *region = &undo->regions[undo->region_count];
    code = read_region(undo, listed, region);
    region->index = i;
    if (code == 0) {
      undo->region_count++;
    } else {
      free(region->patches);
      code = code == CT_ENOMEM ? code : 0;
    }
  }
  return code;
}

static int
compare_ranges(const void *a, const void *b)
{
  const struct range *left = a, *right = b;
  return left->start < right->start ? -1 : left->start > right->start;
}

static void
add_range(struct undo *undo, uint64_t start, uint64_t end)
{
  if (start < end) {
    undo->ours[undo->ours_count++] = (struct range){start, end};
  }
}

/* The agent, the regions, and jumps in between. */
static int
list_our_code(struct undo *undo)
{
  const struct ct_inside *inside = &undo->found->header->inside;
  undo->ours = calloc(2 * CT_REGION_MAX + 1, sizeof(*undo->ours));
  undo->busy = calloc(THREADS_MAX, sizeof(*undo->busy));
  undo->pending = calloc(THREADS_MAX, sizeof(*undo->pending));
  if (undo->ours == NULL || undo->busy == NULL || undo->pending == NULL) {
    return CT_ENOMEM;
  }
  add_range(undo, inside->agent, inside->agent + inside->agent_bytes);
  for (size_t i = 0; i < undo->region_count; i++) {
    add_range(undo, undo->regions[i].start, undo->regions[i].start + undo->regions[i].bytes);
  }
  for (size_t i = 0; i < undo->config->region_count && i < CT_REGION_MAX; i++) {
    const struct ct_region *listed = &undo->config->regions[i];
    if (listed->desc_count == 0 && listed->desc == 0) {
      add_range(undo, listed->lo, listed->hi);
    }
  }
  uint64_t hi = 0;
  undo->unwinding_lo = UINT64_MAX;
  for (size_t i = 0; i < CT_UNWINDING_MAX && undo->config->unwinding[i].hi != 0; i++) {
    const struct ct_unwinder *unwinder = &undo->config->unwinding[i];
    undo->unwinding_lo = unwinder->lo < undo->unwinding_lo ? unwinder->lo : undo->unwinding_lo;
    hi = unwinder->hi > hi ? unwinder->hi : hi;
  }
  undo->unwinding_bytes = hi > undo->unwinding_lo ? hi - undo->unwinding_lo : 0;
  qsort(undo->ours, undo->ours_count, sizeof(*undo->ours), compare_ranges);
  return 0;
}

/* True when the address is in code of ours. */
static bool
is_ours(const struct undo *undo, uint64_t at)
{
  size_t low = 0, high = undo->ours_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (undo->ours[middle].end <= at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < undo->ours_count && at >= undo->ours[low].start;
}

static bool
stands_at(const struct undo *undo, uint64_t address)
{
  for (size_t i = 0; i < undo->frozen->pc_count; i++) {
    if (undo->frozen->pcs[i] == address) {
      return true;
    }
  }
  return false;
}

/* unwinders: those entries too that are answered for unwinders. */
static int
take_back_patches(struct undo *undo, bool unwinders)
{
  int code = 0;
  for (size_t r = 0; r < undo->region_count && code == 0; r++) {
    const struct region *region = &undo->regions[r];
    uint8_t *which = malloc(region->patch_count + 1);
    if (which == NULL) {
      return CT_ENOMEM;
    }
    for (size_t i = 0; i < region->patch_count; i++) {
      const struct ct_patch *patch = &region->patches[i];
      which[i] = patch->kind == CT_PATCH_RELAY ? !stands_at(undo, patch->address)
                                               : patch->kind != CT_PATCH_UNWINDER || unwinders;
    }
    size_t strange;
    code = ct_patches_write(process_of(undo), region->patches, which, region->patch_count, true, &strange);
    undo->undone->patches += region->patch_count;
    undo->undone->strange += strange;
    free(which);
  }
  return code;
}

static bool
anybody_inside(const struct undo *undo)
{
  for (size_t i = 0; i < undo->frozen->pc_count; i++) {
    if (is_ours(undo, undo->frozen->pcs[i])) {
      return true;
    }
  }
  return false;
}

/*
 * True when a thread runs a function that the agent has called in its place (sigaction, which calls nothing more): the
 * address where it comes back is near the top of its stack, and nowhere else.
 */
static bool
anybody_comes_back(const struct undo *undo)
{
  uint64_t back = undo->found->header->inside.back, words[CT_PAGE_BYTES / 8];
  for (size_t i = 0; i < undo->frozen->thread_count && back != 0; i++) {
    struct ct_registers registers;
    int64_t number;
    if (ct_frozen_registers(undo->frozen, i, &registers, &number) != 0) {
      continue;
    }
    uint64_t sp = registers.values[CT_REGISTER_RSP], page = sp & ~(uint64_t)(CT_PAGE_BYTES - 1);
    for (uint64_t at = page; at <= page + BACK_BYTES; at += CT_PAGE_BYTES) {
      if (ct_process_read(process_of(undo), at, words, sizeof(words)) != 0) {
        break;
      }
      for (size_t k = 0; k < CT_PAGE_BYTES / 8; k++) {
        if (words[k] == back && at + 8 * k >= sp) {
          return true;
        }
      }
    }
  }
  return false;
}

static bool
is_unwinding(const struct undo *undo, uint64_t at)
{
  if (at - undo->unwinding_lo >= undo->unwinding_bytes) {
    return false;
  }
  for (size_t i = 0; i < CT_UNWINDING_MAX && undo->config->unwinding[i].hi != 0; i++) {
    if (at >= undo->config->unwinding[i].lo && at < undo->config->unwinding[i].hi) {
      return true;
    }
  }
  return false;
}

static struct seen *
seen_thread(struct undo *undo, pid_t tid)
{
  for (size_t i = 0; i < undo->seen_count; i++) {
    if (undo->seen[i].tid == tid) {
      return &undo->seen[i];
    }
  }
  if (undo->seen_count == SEEN_MAX) {
    return NULL;
  }
  struct seen *seen = &undo->seen[undo->seen_count++];
  *seen = (struct seen){.tid = tid};
  return seen;
}

/* A thread that waits in the kernel, at the same place for a while, is in no unwinder. */
static bool
stands_still(struct undo *undo, const struct ct_frozen_thread *thread, uint64_t now)
{
  struct seen *seen = seen_thread(undo, thread->tid);
  if (seen == NULL || seen->sp != thread->sp || !thread->in_syscall) {
    if (seen != NULL) {
      seen->sp = thread->sp;
      seen->since = now;
    }
    return false;
  }
  return now - seen->since >= STILL_NS;
}

/*
 * Does an unwinder have a frame on the thread's stack, near its top? It holds return addresses that it has read, of
 * trampolines too: *end is where such a frame may end. What lies on a stack may be left over.
 */
static bool
thread_unwinds(struct undo *undo, const struct ct_frozen_thread *thread, uint64_t now, uint64_t *end)
{
  uint64_t words[UNWINDER_BYTES / 8];
  size_t bytes = sizeof(words);
  while (bytes != 0 && ct_process_read(process_of(undo), thread->sp, words, bytes) != 0) {
    bytes /= 2; /* nearer to the stack's end */
  }
  *end = is_unwinding(undo, thread->pc) ? thread->sp + FRAME_BYTES : 0;
  for (size_t i = 0; i < bytes / 8; i++) {
    if (is_unwinding(undo, words[i])) {
      *end = thread->sp + 8 * i + FRAME_BYTES;
    }
  }
  return *end != 0 && !stands_still(undo, thread, now);
}

/* Finds the threads in unwinders, and those in our code. */
static void
look_at_threads(struct undo *undo)
{
  uint64_t now = ct_now_ns();
  undo->busy_count = 0;
  for (size_t i = 0; i < undo->frozen->thread_count && undo->busy_count < THREADS_MAX; i++) {
    const struct ct_frozen_thread *thread = &undo->frozen->threads[i];
    uint64_t end;
    bool unwinds = thread_unwinds(undo, thread, now, &end);
    if (unwinds || is_ours(undo, thread->pc)) {
      undo->busy[undo->busy_count++] = (struct busy){thread->tid, thread->sp, unwinds ? end : thread->sp};
    }
  }
}

/* Those that have been busy at each look so far; at the first one all that are. */
static void
note_pending(struct undo *undo)
{
  size_t left = 0;
  if (!undo->looked) {
    undo->looked = true;
    for (size_t i = 0; i < undo->busy_count; i++) {
      undo->pending[i] = undo->busy[i].tid;
    }
    undo->pending_count = undo->busy_count;
    return;
  }
  for (size_t i = 0; i < undo->pending_count; i++) {
    bool is_busy = false;
    for (size_t j = 0; j < undo->busy_count; j++) {
      is_busy |= undo->busy[j].tid == undo->pending[i];
    }
    if (is_busy) {
      undo->pending[left++] = undo->pending[i];
    }
  }
  undo->pending_count = left;
}

/* A signal handler runs above a place in our code. */
static bool
handler_above_us(const struct undo *undo)
{
  for (size_t i = 0; i < undo->frozen->pc_count; i++) {
    bool current = false;
    for (size_t t = 0; t < undo->frozen->thread_count && !current; t++) {
      current = undo->frozen->threads[t].pc == undo->frozen->pcs[i];
    }
    if (!current && is_ours(undo, undo->frozen->pcs[i])) {
      return true;
    }
  }
  return false;
}

static bool
in_unwinder(const struct undo *undo, uint64_t at)
{
  for (size_t i = 0; i < undo->busy_count; i++) {
    if (at >= undo->busy[i].sp && at < undo->busy[i].end) {
      return true;
    }
  }
  return false;
}

/*
 * Does a frame return to that address? What else there is of ours on a stack is the agent's and the trampolines' own.
 * Behind the trampoline's call, which has four bytes of distance, is an instruction that is nowhere else behind a call.
 */
static bool
is_return_point(const struct undo *undo, uint64_t at)
{
  uint8_t bytes[10];
  return is_ours(undo, at) && ct_process_read(process_of(undo), at - 5, bytes, sizeof(bytes)) == 0 &&
         bytes[0] == 0xe8 && memcmp(bytes + 5, "\x48\x8d\x64\x24\xf8", 5) == 0; /* call; lea -8(%rsp), %rsp */
}

/* One page of a return store, and the page of the stack that it is of. */
static int
put_back_page(struct undo *undo, uint64_t store_page, bool skip)
{
  uint64_t store[CT_PAGE_BYTES / 8], stack[CT_PAGE_BYTES / 8];
  uint64_t stack_page = store_page - (uint64_t)undo->config->store_delta;
  if (ct_process_read(process_of(undo), store_page, store, sizeof(store)) != 0 ||
      ct_process_read(process_of(undo), stack_page, stack, sizeof(stack)) != 0) {
    return 0; /* the stack is gone */
  }
  for (size_t i = 0; i < CT_PAGE_BYTES / 8; i++) {
    if (store[i] != 0 && is_return_point(undo, stack[i]) && !(skip && in_unwinder(undo, stack_page + 8 * i))) {
      int code = ct_process_write(process_of(undo), stack_page + 8 * i, &store[i], sizeof(store[i]));
      if (code != 0) {
        return code;
      }
      undo->undone->frames++;
    }
  }
  return 0;
}

/* skip: not what unwinders have in their frames. */
static int
put_back_returns(struct undo *undo, bool skip)
{
  struct ct_pagemap map;
  int code = 0;
  ct_pagemap_open(&map, process_of(undo)->pid);
  for (size_t i = 0; i < undo->config->store_count && i < CT_STORE_MAX && code == 0; i++) {
    uint64_t at = undo->config->stores[i].lo, next;
    while (code == 0 && at < undo->config->stores[i].hi) {
      next = ct_pagemap_find(&map, at, undo->config->stores[i].hi, true);
      if (next >= undo->config->stores[i].hi) {
        break;
      }
      code = put_back_page(undo, next, skip);
      at = next + CT_PAGE_BYTES;
    }
  }
  ct_pagemap_close(&map);
  return code;
}

/* Threads that were in the agent have added to the list of stores meanwhile. */
static int
read_stores(struct undo *undo)
{
  uint64_t at = undo->found->header->inside.config;
  struct ct_agent_config *config = undo->config;
  if (at == 0) {
    return 0;
  }
  int code = ct_process_read(process_of(undo), at + offsetof(struct ct_agent_config, stores), config->stores,
                             sizeof(config->stores));
  return code != 0 ? code
                   : ct_process_read(process_of(undo), at + offsetof(struct ct_agent_config, store_count),
                                     &config->store_count, sizeof(config->store_count));
}

static int
find_pcs(const struct undo *undo)
{
  const struct ct_inside *inside = &undo->found->header->inside;
  struct ct_inner_stacks inner = {inside->controls, inside->controls_bytes, CT_CONTROL_STRIDE};
  return ct_frozen_find_pcs(undo->frozen, undo->config->restorers, CT_RESTORER_MAX, inner);
}

/* One look at the process, and what can be done. True when this phase is done. */
static int
take_a_look(struct undo *undo, bool last, bool *done)
{
  int code = read_stores(undo);
  if (code != 0) {
    return code;
  }
  code = find_pcs(undo);
  undo->undone->patches = undo->undone->strange = 0;
  if (code == 0 && last) {
    code = put_back_returns(undo, false); /* before unwinders are told no more */
  }
  if (code == 0) {
    code = take_back_patches(undo, last);
  }
  if (code == 0) {
    look_at_threads(undo);
    note_pending(undo);
    code = put_back_returns(undo, !last);
  }
  *done =
      last ? !anybody_inside(undo) && !anybody_comes_back(undo) : undo->pending_count == 0 && !handler_above_us(undo);
  return code;
}

/* Steps 2 to 5. */
static int
leave_our_code(struct undo *undo, uint64_t *held_since, int deadline_ms, struct ct_diag *diag)
{
  struct ct_frozen *frozen = undo->frozen;
  struct ct_process *process = frozen->process;
  uint64_t deadline = ct_now_ns() + (uint64_t)deadline_ms * 1000000u;
  bool last = false;
  for (uint64_t step = STEP_NS;; step = step < STEP_MAX_NS ? step * 2 : step) {
    bool done = false;
    int code = take_a_look(undo, last, &done);
    if (code == 0 && done && !last) {
      last = true;
      code = take_a_look(undo, last, &done);
    }
    if (code != 0) {
      return ct_fail(diag, code, "cannot write to the memory of process %d: %s", (int)process->pid, ct_err_text(code));
    }
    if (done) {
      return 0;
    }
    if (ct_now_ns() > deadline) {
      undo->undone->kept = true;
      return 0;
    }
    uint64_t held = ct_now_ns() - *held_since;
    undo->undone->pause_ns = held > undo->undone->pause_ns ? held : undo->undone->pause_ns;
    ct_process_thaw(frozen);
    uint64_t run = held > step ? held : step; /* at least as long as it was held */
    run = run < RUN_MAX_NS ? run : RUN_MAX_NS;
    struct timespec wait = {0, (long)run};
    nanosleep(&wait, NULL);
    do { /* where many others want the processors, threads may take long to stop */
      code = ct_process_freeze(process, HOLD_MS, frozen, diag);
    } while (code == CT_ETIMEOUT && ct_now_ns() < deadline);
    *held_since = frozen->since_ns;
    if (code != 0) {
      return code;
    }
  }
}

static int
frozen_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  return ct_frozen_syscall(context, number, args, result);
}

static int
give_back_signals(struct undo *undo)
{
  const struct ct_inside *inside = &undo->found->header->inside;
  struct ct_remote remote = {.process = process_of(undo), .syscall = frozen_syscall, .context = undo->frozen};
  return inside->config == 0 ? 0 : ct_signals_give_back(&remote, inside->config, inside->agent, inside->agent_bytes);
}

static int
undo_all(struct undo *undo, int deadline_ms, struct ct_diag *diag)
{
  uint64_t held_since = undo->frozen->since_ns;
  uint32_t closed = 1;
  if (undo->found->ring == 0) {
    return undo_call(undo, SYS_close, (uint64_t)undo->found->descriptor, 0, 0);
  }
  int code = ct_process_write(process_of(undo), undo->found->ring + offsetof(struct ct_ring_header, closed), &closed,
                              sizeof(closed));
  if (code == 0) {
    code = read_all(undo);
  }
  if (code == 0) {
    code = list_our_code(undo);
  }
  if (code == 0) {
    code = find_pcs(undo);
  }
  if (code == 0) {
    code = ct_frozen_sweep(undo->frozen);
  }
  if (code == 0) {
    code = give_back_signals(undo);
  }
  if (code == 0) {
    code = leave_our_code(undo, &held_since, deadline_ms, diag);
  }
  if (code == 0) {
    code = give_back_signals(undo); /* once more: a thread may have been about to put one in */
  }
  if (code == 0) {
    undo->undone->threads = undo->frozen->thread_count;
  }
  if (code == 0 && !undo->undone->kept) {
    code = ct_frozen_set_gs_base(undo->frozen, 0);
    if (code == 0) {
      code = undo_give_up_copies(undo);
    }
    if (code == 0) {
      code = undo_unmap_all(undo);
    }
  }
  uint64_t held = ct_now_ns() - held_since;
  undo->undone->pause_ns = held > undo->undone->pause_ns ? held : undo->undone->pause_ns;
  return code;
}

int
ct_undo(struct ct_frozen *frozen, const struct ct_found *found, int deadline_ms, struct ct_undone *undone,
        struct ct_diag *diag)
{
  static _Thread_local struct undo undo; /* large */
  undo = (struct undo){.frozen = frozen, .found = found, .undone = undone};
  memset(undone, 0, sizeof(*undone));
  int code = undo_all(&undo, deadline_ms, diag);
  for (size_t i = 0; i < undo.region_count; i++) {
    free(undo.regions[i].patches);
  }
  free(undo.regions);
  free(undo.ours);
  free(undo.busy);
  free(undo.pending);
  free(undo.config);
  if (code != 0 && diag != NULL && diag->text[0] == '\0') {
    ct_fail(diag, code, "cannot take the hooks out of process %d: %s", (int)frozen->process->pid, ct_err_text(code));
  }
  return code;
}
