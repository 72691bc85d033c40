/* SPDX-License-Identifier: MIT */
/*
 * Undoing an image; see undo.h. The steps, the process being stopped:
 *
 *   1. The ring is closed: whoever waits in the agent goes on. Signals have the program's own dispositions again.
 *   2. Patches are taken back, from the lists that lie after each region's trampolines. Not one on which a thread
 *      stands that is a jump to a jump: that one has its turn later. And not yet the guards (CT_PATCH_GUARD), by which
 *      unwinders learn of trampolines and stacks are copied without: as long as a frame would return through one.
 *   3. Frames that would return through trampolines get their true return addresses: for each page of a return store
 *      that was ever written, each entry whose slot on the stack holds an address of ours. That finds all of them, also
 * on stacks that no thread is on now.
 *   4. A thread that was in an unwinder may have an address of a trampoline in the unwinder's own frames, which are
 *      left alone; one that was in our code may be about to put one on its stack. The process runs for a moment and
 *      is stopped again, until each of them has been seen elsewhere. From then on it cannot meet one again.
 *   5. The last patches go, and with them what they left on stacks, until nobody is in our code.
 *   6. gs is 0 again, in all threads. Text whose pages are now as in the file becomes the file's own pages again.
 *   7. All of ours is unmapped, the ring last, so that it can be found as long as there is anything.
 *
 * A signal handler above a place in our code may take as long as it likes. Then the rest is left out.
 *
 * All lists are in memory that the process can write to. Nothing in them is believed: ranges count as far as they are
 * mapped as ours are, sizes as far as they fit in there, and at the deadline the rest is left out as well.
 *
 * If we die on the way the process goes on with what is left, and the next one to come finishes: each step can be done
 * twice. What has been unmapped is out of the lists before, since its addresses may become somebody else's, and pending
 * meanwhile (struct ct_inside), as are mappings that are being made.
 */
#include "hook/undo_internal.h"

#include "base/clock.h"
#include "hook/near_alloc.h"
#include "hook/signals.h"
#include "hook/text.h"
#include "x86/trampoline.h"

#include <assert.h>
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
#define EXPEDITED_NS   500000000u    /* for threads to leave our code when somebody wants an end to it */
#define STOP_MS        1000          /* to stop all threads */
#define END_NS         2000000000u   /* at least so long there is for the last steps */
#define PATCHES_MAX    (16ull << 20) /* of all regions: a function has an entry, and perhaps a relay */
#define BACK_BYTES     8192          /* of a stack that are searched for a return into the agent */

bool
undo_is_late(struct undo *undo)
{
  uint64_t now = ct_now_ns();
  if (!undo->expedited && ct_process_is_expedited(process_of(undo))) {
    undo->expedited = true;
    undo->deadline_ns = undo->deadline_ns > now + EXPEDITED_NS ? now + EXPEDITED_NS : undo->deadline_ns;
  }
  return now > undo->deadline_ns;
}

static bool
is_enough(void *context)
{
  return undo_is_late(context);
}

/* Each in place, as we make them, and after the one before. */
static bool
are_patches(const struct ct_patch *patches, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (patches[i].length > sizeof(patches[i].bytes) || patches[i].address >> 47 != 0 ||
        (i != 0 && patches[i].address < patches[i - 1].address)) {
      return false;
    }
  }
  return true;
}

/* The region's patches, which lie after its trampolines. A region that is not whole has none in place. */
static int
read_region(struct undo *undo, const struct ct_region *listed, struct region *region)
{
  struct ct_region_head head;
  *region = (struct region){.start = listed->lo};
  if (ct_process_read(process_of(undo), listed->lo, &head, sizeof(head)) != 0 || head.patches < listed->lo ||
      head.patches - listed->lo > head.region_bytes ||
      head.patch_count > (head.region_bytes - (head.patches - listed->lo)) / sizeof(struct ct_patch) ||
      head.patch_count > PATCHES_MAX - undo->patches_read) {
    return CT_EFORMAT;
  }
  undo->patches_read += head.patch_count; /* of those too that turn out to be none: a list may name one place often */
  region->bytes = head.region_bytes;
  region->patches = malloc(head.patch_count * sizeof(struct ct_patch) + 1);
  if (region->patches == NULL) {
    return CT_ENOMEM;
  }
  region->patch_count = head.patch_count;
  int code =
      ct_process_read(process_of(undo), head.patches, region->patches, head.patch_count * sizeof(struct ct_patch));
  return code != 0 ? code : are_patches(region->patches, region->patch_count) ? 0 : CT_EFORMAT;
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
  for (size_t i = 0; i < count && code == 0 && !undo_is_late(undo); i++) {
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
  undo->still = calloc(THREADS_MAX, 1);
  if (undo->ours == NULL || undo->busy == NULL || undo->pending == NULL || undo->still == NULL) {
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
bool
undo_is_ours(const struct undo *undo, uint64_t at)
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

static int
compare_addresses(const void *a, const void *b)
{
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

static bool
is_among(const uint64_t *sorted, size_t count, uint64_t address)
{
  return count != 0 && bsearch(&address, sorted, count, sizeof(*sorted), compare_addresses) != NULL;
}

/*
 * A relay in padding whose thread stands at it stays: what was there is no code. Is it in place? Instructions that
 * moved out may be executed where they were.
 */
static bool
has_to_stay(const struct undo *undo, const struct ct_patch *patch)
{
  uint8_t bytes[sizeof(patch->bytes)];
  return ct_patch_is_relay(patch) && (patch->kind & CT_PATCH_EVICTED) == 0 &&
         is_among(undo->stopped->pcs, undo->stopped->pc_count, patch->address) &&
         (ct_process_read(process_of(undo), patch->address, bytes, patch->length) != 0 ||
          memcmp(bytes, patch->bytes, patch->length) == 0);
}

static int
take_back_patches(struct undo *undo, bool guards)
{
  int code = 0;
  undo->relay_stays = false;
  for (size_t r = 0; r < undo->region_count && code == 0 && !undo_is_late(undo); r++) {
    const struct region *region = &undo->regions[r];
    uint8_t *which = malloc(region->patch_count + 1);
    if (which == NULL) {
      code = CT_ENOMEM;
      break;
    }
    for (size_t i = 0; i < region->patch_count; i++) {
      const struct ct_patch *patch = &region->patches[i];
      bool has_turn = guards || !ct_patch_is_guard(patch) || (undo->gs_goes && (patch->kind & CT_PATCH_COPY) != 0);
      bool stays = has_to_stay(undo, patch);
      undo->relay_stays |= stays;
      which[i] = has_turn && !stays;
    }
    size_t strange;
    const struct ct_enough enough = {is_enough, undo};
    code = ct_patches_take_back(process_of(undo), region->patches, which, region->patch_count, &enough, &strange);
    undo->undone->patches += region->patch_count;
    undo->undone->strange += strange;
    free(which);
  }
  return code;
}

/* Does the thread wait in the agent to be sent elsewhere? */
static bool
waits_to_be_sent(const struct undo *undo, const struct ct_stopped_thread *thread)
{
  return undo->frame != 0 && thread->sp < undo->frame && undo->frame - thread->sp < FRAME_BYTES &&
         undo_is_ours(undo, thread->pc);
}

static bool
anybody_inside(const struct undo *undo)
{
  size_t inside = 0;
  for (size_t i = 0; i < undo->stopped->pc_count; i++) {
    inside += undo_is_ours(undo, undo->stopped->pcs[i]);
  }
  for (size_t i = 0; i < undo->stopped->thread_count; i++) {
    inside -= waits_to_be_sent(undo, &undo->stopped->threads[i]);
  }
  return inside != 0;
}

/* Who waits in our code goes on at the entry of its function. */
static int
send_who_waits(struct undo *undo)
{
  struct ct_registers registers;
  static_assert(sizeof(registers) == sizeof(struct ct_leave_frame), "registers");
  int code = 0;
  for (size_t i = 0; i < undo->stopped->thread_count && code == 0; i++) {
    if (waits_to_be_sent(undo, &undo->stopped->threads[i])) {
      code = ct_process_read(process_of(undo), undo->frame, &registers, sizeof(registers));
      code = code == 0 ? ct_stopped_send(undo->stopped, i, &registers) : code;
      undo->frame = 0;
    }
  }
  return code;
}

/*
 * True when a thread runs a function that the agent has called in its place (sigaction, which calls nothing more): the
 * address where it comes back is near the top of its stack, and nowhere else.
 */
static bool
anybody_comes_back(const struct undo *undo)
{
  uint64_t back = undo->found->header->inside.back, words[CT_PAGE_BYTES / 8];
  for (size_t i = 0; i < undo->stopped->thread_count && back != 0; i++) {
    struct ct_registers registers;
    int64_t number;
    if (ct_stopped_registers(undo->stopped, i, &registers, &number) != 0) {
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
stands_still(struct undo *undo, const struct ct_stopped_thread *thread, uint64_t now)
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
thread_unwinds(struct undo *undo, const struct ct_stopped_thread *thread, uint64_t now, uint64_t *end)
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

static int
compare_stacks(const void *a, const void *b)
{
  uint64_t left = ((const struct busy *)a)->sp, right = ((const struct busy *)b)->sp;
  return left < right ? -1 : left > right;
}

/* The thread's control page, 0 when its gs does not lead to one. */
static uint64_t
control_of(const struct undo *undo, const struct ct_stopped_thread *thread)
{
  const struct ct_inside *inside = &undo->found->header->inside;
  uint64_t offset = thread->gs_base - inside->controls;
  return thread->gs_base >= inside->controls && offset < inside->controls_bytes && offset % CT_CONTROL_STRIDE == 0
             ? thread->gs_base
             : 0;
}

/* Finds the threads in unwinders, and those in our code. */
static void
check_threads(struct undo *undo)
{
  uint64_t now = ct_now_ns();
  undo->busy_count = 0;
  for (size_t i = 0; i < undo->stopped->thread_count && undo->busy_count < THREADS_MAX; i++) {
    const struct ct_stopped_thread *thread = &undo->stopped->threads[i];
    uint64_t end;
    bool unwinds = thread_unwinds(undo, thread, now, &end);
    if ((unwinds || undo_is_ours(undo, thread->pc)) && !waits_to_be_sent(undo, thread)) {
      undo->busy[undo->busy_count++] =
          (struct busy){thread->tid, thread->sp, unwinds ? end : thread->sp, unwinds ? 0 : control_of(undo, thread)};
    }
  }
  qsort(undo->busy, undo->busy_count, sizeof(*undo->busy), compare_stacks);
}

/* A signal handler runs above a place in our code. All threads, and all that lies on their stacks, may be there. */
static bool
handler_above_us(const struct undo *undo)
{
  const struct ct_stopped *stopped = undo->stopped;
  uint64_t *current = reallocarray(NULL, stopped->thread_count + 1, sizeof(*current));
  bool is = current == NULL; /* no memory: it is asked again */
  for (size_t t = 0; t < stopped->thread_count && !is; t++) {
    current[t] = stopped->threads[t].pc;
  }
  if (!is) {
    qsort(current, stopped->thread_count, sizeof(*current), compare_addresses);
  }
  for (size_t i = 0; i < stopped->pc_count && !is; i++) {
    is = undo_is_ours(undo, stopped->pcs[i]) && !is_among(current, stopped->thread_count, stopped->pcs[i]);
  }
  free(current);
  return is;
}

/* An element of either kind begins with the thread's id. */
static int
compare_tids(const void *a, const void *b)
{
  pid_t left = *(const pid_t *)a, right = *(const pid_t *)b;
  return left < right ? -1 : left > right;
}

static uint64_t
visits_of(const struct undo *undo, uint64_t control)
{
  uint64_t visits = 0;
  return ct_process_read(process_of(undo), control + offsetof(struct ct_control_page, visits), &visits,
                         sizeof(visits)) == 0
             ? visits
             : 0;
}

/*
 * A program that does little but copy its stacks is in a guard at most passes, which is in place still. It has left the
 * hook that it was in at the first pass when it has been in more of them than one hook can explain, and no signal
 * handler runs above one.
 */
static bool
has_left_since(const struct undo *undo, struct pending *pending, uint64_t control, bool handlers)
{
  if (control == 0) {
    return false;
  }
  uint64_t visits = visits_of(undo, control);
  if (control != pending->control) {
    pending->control = control;
    pending->visits = visits;
  }
  return !handlers && visits - pending->visits > CT_HOOK_VISITS_MAX;
}

/* Those that have been busy at each pass so far; at the first one all that are. Sorted. */
static void
note_pending(struct undo *undo)
{
  size_t left = 0;
  uint8_t *is_busy = undo->still;
  bool handlers = handler_above_us(undo);
  if (!undo->has_passed) {
    undo->has_passed = true;
    for (size_t i = 0; i < undo->busy_count; i++) {
      undo->pending[i] = (struct pending){.tid = undo->busy[i].tid};
      has_left_since(undo, &undo->pending[i], undo->busy[i].control, handlers);
    }
    undo->pending_count = undo->busy_count;
    qsort(undo->pending, undo->pending_count, sizeof(*undo->pending), compare_tids);
    return;
  }
  memset(is_busy, 0, undo->pending_count);
  for (size_t i = 0; i < undo->busy_count; i++) {
    struct pending *found =
        bsearch(&undo->busy[i].tid, undo->pending, undo->pending_count, sizeof(*undo->pending), compare_tids);
    if (found != NULL) {
      is_busy[found - undo->pending] = !has_left_since(undo, found, undo->busy[i].control, handlers);
    }
  }
  for (size_t i = 0; i < undo->pending_count; i++) {
    if (is_busy[i]) {
      undo->pending[left++] = undo->pending[i];
    }
  }
  undo->pending_count = left;
}

/* The busy ones are sorted by where their stacks end, and a frame has its bounds. */
bool
undo_in_unwinder(const struct undo *undo, uint64_t at)
{
  size_t low = 0, high = undo->busy_count;
  while (low < high) { /* the first one after it */
    size_t middle = low + (high - low) / 2;
    if (undo->busy[middle].sp <= at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (; low > 0 && at - undo->busy[low - 1].sp < UNWINDER_BYTES + FRAME_BYTES; low--) {
    if (at < undo->busy[low - 1].end) {
      return true;
    }
  }
  return false;
}

static int
compare_chunks(const void *a, const void *b)
{
  uint64_t left = ((const struct chunk *)a)->is.base, right = ((const struct chunk *)b)->is.base;
  return left < right ? -1 : left > right;
}

/* The chunks of return stores, from the agent's map. Threads that were in the agent may have changed it since the last
 * pass. What cannot be a chunk is passed over. */
static int
read_stores(struct undo *undo)
{
  const uint64_t map = undo->found->header->inside.stacks;
  uint32_t count;
  undo->chunk_count = 0;
  if (map == 0 || undo->found->header->inside.config == 0) {
    return 0;
  }
  int code = ct_process_read(process_of(undo), map + offsetof(struct ct_stack_map, chunk_count), &count, sizeof(count));
  if (code != 0) {
    return code;
  }
  count = count < CT_CHUNK_MAX ? count : CT_CHUNK_MAX;
  struct ct_store_chunk *raw = malloc(count * sizeof(*raw) + 1);
  free(undo->chunks);
  undo->chunks = malloc(count * sizeof(*undo->chunks) + 1);
  if (raw == NULL || undo->chunks == NULL) {
    code = CT_ENOMEM;
    goto free_raw;
  }
  const uint64_t at = map + offsetof(struct ct_stack_map, chunks);
  if (count != 0) {
    code = ct_process_read(process_of(undo), at, raw, count * sizeof(*raw));
  }
  if (code != 0) {
    goto free_raw;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (ct_store_chunk_is_sound(&raw[i])) {
      undo->chunks[undo->chunk_count++] = (struct chunk){raw[i], at + i * sizeof(*raw)};
    }
  }
  qsort(undo->chunks, undo->chunk_count, sizeof(*undo->chunks), compare_chunks);
free_raw:
  free(raw);
  return code;
}

static int
find_pcs(const struct undo *undo)
{
  const struct ct_inside *inside = &undo->found->header->inside;
  struct ct_inner_stacks inner = {inside->controls, inside->controls_bytes, CT_CONTROL_STRIDE,
                                  undo->config->store_delta};
  return ct_stopped_find_pcs(undo->stopped, undo->config->restorers, CT_RESTORER_MAX, inner);
}

/* One pass over the process, and what can be done. True when this phase is done. */
static int
check_once(struct undo *undo, bool last, bool *done)
{
  int code = read_stores(undo);
  if (code != 0) {
    return code;
  }
  code = find_pcs(undo);
  if (code == CT_ETIMEOUT) { /* it is too late for all of it, for who does not know where they are */
    undo->deadline_ns = 0;
    *done = false;
    return 0;
  }
  undo->undone->patches = undo->undone->strange = 0;
  bool guards = last || undo->wait != NULL; /* who waits may take gs, which guards need as all hooks do */
  if (code != 0) {
    goto look_around;
  }
  code = guards ? undo_put_back_returns(undo, false) : 0; /* before the guards go */
  if (code != 0) {
    goto look_around;
  }
  code = take_back_patches(undo, guards);
  if (code != 0) {
    goto look_around;
  }
  check_threads(undo);
  note_pending(undo);
  code = undo_put_back_returns(undo, !last);
look_around:
  if (undo_is_late(undo)) { /* not all has been looked at */
    *done = false;
    return code;
  }
  *done = last ? !undo->relay_stays && !anybody_inside(undo) && !anybody_comes_back(undo)
               : undo->pending_count == 0 && !handler_above_us(undo);
  return code;
}

/* Steps 2 to 5. */
static int
leave_our_code(struct undo *undo, uint64_t *stopped_since, struct ct_diag *diag)
{
  struct ct_stopped *stopped = undo->stopped;
  struct ct_process *process = stopped->process;
  bool last = false;
  for (uint64_t step = STEP_NS;; step = step < STEP_MAX_NS ? step * 2 : step) {
    bool done = false;
    int code = check_once(undo, last, &done);
    if (code == 0 && undo->wait != NULL) {
      undo->wait->out(undo->wait->context);
      undo->wait = NULL;
    }
    if (code == 0 && done && !last) {
      last = true;
      code = check_once(undo, last, &done);
    }
    if (code != 0) {
      return ct_fail(diag, code, "cannot write to the memory of process %d: %s", (int)process->pid, ct_err_text(code));
    }
    if (done) {
      return 0;
    }
    if (undo_is_late(undo)) {
      undo->undone->kept = true;
      return 0;
    }
    uint64_t stopped_ns = ct_now_ns() - *stopped_since;
    undo->undone->pause_ns = stopped_ns > undo->undone->pause_ns ? stopped_ns : undo->undone->pause_ns;
    ct_process_resume(stopped);
    uint64_t run = stopped_ns > step ? stopped_ns : step; /* at least as long as it was stopped */
    run = run < RUN_MAX_NS ? run : RUN_MAX_NS;
    struct timespec wait = {0, (long)run};
    nanosleep(&wait, NULL);
    do { /* where many others want the processors, threads may take long to stop */
      code = ct_process_stop(process, STOP_MS, stopped, diag);
    } while (code == CT_ETIMEOUT && !undo_is_late(undo));
    *stopped_since = stopped->since_ns;
    if (code != 0) {
      return code;
    }
  }
}

static int
stopped_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  return ct_stopped_syscall(context, number, args, result);
}

static int
give_back_signals(struct undo *undo)
{
  const struct ct_inside *inside = &undo->found->header->inside;
  struct ct_remote remote = {.process = process_of(undo), .syscall = stopped_syscall, .context = undo->stopped};
  /* Before the filter came the agent has given them back itself (agent/watch.c). */
  return inside->config == 0 || undo->undone->is_filtered
             ? 0
             : ct_signals_give_back(&remote, inside->config, inside->agent, inside->agent_bytes);
}

/* The hooks go out, and the threads with them. */
static int
undo_hooks(struct undo *undo, uint64_t *stopped_since, struct ct_diag *diag)
{
  int code = read_all(undo);
  if (code != 0 || (code = list_our_code(undo)) != 0 || (code = find_pcs(undo)) != 0) {
    return code;
  }
  if ((code = ct_stopped_sweep(undo->stopped)) != 0 || (code = give_back_signals(undo)) != 0) {
    return code;
  }
  if ((code = leave_our_code(undo, stopped_since, diag)) != 0) {
    return code;
  }
  return give_back_signals(undo); /* once more: a thread may have been about to put one in */
}

/* What is ours in the process goes away. */
static int
undo_mappings(struct undo *undo)
{
  const struct ct_inside *inside = &undo->found->header->inside;
  const uint64_t ranges[][2] = {{inside->controls, inside->controls_bytes}, {inside->agent, inside->agent_bytes}};
  uint64_t end = ct_now_ns() + END_NS;
  undo->deadline_ns = undo->deadline_ns > end ? undo->deadline_ns : end;
  undo->expedited = false;
  int code = ct_stopped_clear_gs_base(undo->stopped, ranges, 2);
  if (code != 0 || (code = undo_give_up_copies(undo)) != 0) {
    return code;
  }
  return undo_unmap_all(undo);
}

static int
undo_all(struct undo *undo, struct ct_diag *diag)
{
  uint64_t stopped_since = undo->stopped->since_ns;
  uint32_t closed = 1;
  if (undo->found->ring == 0) {
    return undo_call(undo, SYS_close, (uint64_t)undo->found->descriptor, 0, 0);
  }
  int code = ct_process_write(process_of(undo), undo->found->ring + offsetof(struct ct_ring_header, closed), &closed,
                              sizeof(closed));
  undo->undone->is_filtered = !ct_stopped_may_call(undo->stopped);
  if (code != 0 || (code = undo_hooks(undo, &stopped_since, diag)) != 0) {
    goto measure_pause;
  }
  undo->undone->threads = undo->stopped->thread_count;
  code = send_who_waits(undo);
  undo->undone->kept |= undo->undone->is_filtered;
  if (code == 0 && !undo->undone->kept) {
    code = undo_mappings(undo);
  }
measure_pause:;
  uint64_t stopped_ns = ct_now_ns() - stopped_since;
  undo->undone->pause_ns = stopped_ns > undo->undone->pause_ns ? stopped_ns : undo->undone->pause_ns;
  return code;
}

int
ct_undo(struct ct_stopped *stopped, const struct ct_detection *found, int deadline_ms, const struct ct_undo_wait *wait,
        struct ct_undone *undone, struct ct_diag *diag)
{
  static _Thread_local struct undo undo; /* large */
  undo = (struct undo){.process = stopped->process,
                       .stopped = stopped,
                       .found = found,
                       .wait = wait,
                       .frame = wait != NULL ? wait->frame : 0,
                       .undone = undone};
  undo.gs_goes = wait != NULL && wait->frame == 0;
  memset(undone, 0, sizeof(*undone));
  undo.deadline_ns = ct_now_ns() + (uint64_t)deadline_ms * 1000000u;
  int code = undo_all(&undo, diag);
  for (size_t i = 0; i < undo.region_count; i++) {
    free(undo.regions[i].patches);
  }
  free(undo.regions);
  free(undo.ours);
  free(undo.busy);
  free(undo.pending);
  free(undo.still);
  free(undo.chunks);
  free(undo.config);
  if (code != 0 && diag != NULL && diag->text[0] == '\0') {
    ct_fail(diag, code, "cannot take the hooks out of process %d: %s", (int)undo.process->pid, ct_err_text(code));
  }
  return code;
}
