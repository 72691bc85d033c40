/* SPDX-License-Identifier: MIT */
/*
 * See leftovers.h. A space of a tracer (space.h) is one shared memfd: what thread and tracer share lies below 2 GiB,
 * with nothing else of ours there, and distinguishes it from other memory of that name. Nothing of the program has an
 * address in it, but for a thread that is in there, and for the frame of a signal's handler that came after the
 * tracer's death: threads' stacks are looked at for any such word.
 */
#include "itrace/leftovers.h"

#include "base/clock.h"
#include "itrace/space.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOW_END     0x80000000ull
#define STACK_MAX   (8ull << 20) /* of each thread, from its stack pointer on */
#define CHUNK_BYTES 65536u
#define STOP_MS     2000
#define SPACES_MAX  4096
#define LOOK_NS     10000000000ull /* at all stacks */

struct spaces {
  struct ct_mappings mappings;
  struct space {
    uint64_t inode, at; /* where its lowest part lies */
    uint32_t liveness;
  } *items;
  size_t count;
  uint64_t (*ranges)[2]; /* start and end of each of their mappings */
  size_t range_count;
};

static bool
has_name(const struct ct_mapping *mapping)
{
  static const char name[] = "/memfd:contrail ";
  return mapping->shared && strncmp(mapping->path, name, sizeof(name) - 1) == 0;
}

static bool
is_ours(const struct spaces *spaces, const struct ct_mapping *mapping)
{
  bool found = false;
  for (size_t i = 0; i < spaces->count && has_name(mapping) && !found; i++) {
    found = spaces->items[i].inode == mapping->inode;
  }
  return found;
}

static int
find_ranges(struct spaces *spaces)
{
  spaces->ranges = calloc(spaces->mappings.count + 1, sizeof(*spaces->ranges));
  for (size_t i = 0; i < spaces->mappings.count && spaces->ranges != NULL; i++) {
    const struct ct_mapping *mapping = &spaces->mappings.items[i];
    if (is_ours(spaces, mapping)) {
      uint64_t *range = spaces->ranges[spaces->range_count++];
      range[0] = mapping->start;
      range[1] = mapping->end;
    }
  }
  return spaces->ranges != NULL ? 0 : CT_ENOMEM;
}

static int
find(pid_t pid, struct spaces *spaces)
{
  *spaces = (struct spaces){.count = 0};
  int code = ct_process_mappings(pid, &spaces->mappings);
  for (size_t i = 0; i < spaces->mappings.count && code == 0 && spaces->count < SPACES_MAX; i++) {
    const struct ct_mapping *mapping = &spaces->mappings.items[i];
    if (!has_name(mapping) || mapping->end > LOW_END || mapping->offset != 0 || !mapping->writable ||
        mapping->end - mapping->start != CT_SPACE_SHARED_BYTES) {
      continue;
    }
    struct space *items = reallocarray(spaces->items, spaces->count + 1, sizeof(*items));
    code = items != NULL ? 0 : CT_ENOMEM;
    if (items != NULL) {
      spaces->items = items;
      items[spaces->count++] = (struct space){.inode = mapping->inode, .at = mapping->start};
    }
  }
  return code == 0 ? find_ranges(spaces) : code;
}

static void
drop(struct spaces *spaces)
{
  ct_mappings_free(&spaces->mappings);
  free(spaces->items);
  free(spaces->ranges);
}

/* Does a tracer count in one of them? It does each tenth of a second at least. */
static bool
is_alive(const struct ct_process *process, const struct spaces *spaces)
{
  enum { LOOK_US = 400000 };
  bool found = false;
  for (int look = 0; look < 2; look++) {
    if (look == 1) {
      usleep(LOOK_US);
    }
    for (size_t i = 0; i < spaces->count; i++) {
      uint32_t now = 0;
      ct_process_read(process, spaces->items[i].at + offsetof(struct ct_itrace_slots, liveness), &now, sizeof(now));
      found |= look == 1 && now != spaces->items[i].liveness;
      spaces->items[i].liveness = now;
    }
  }
  return found;
}

bool
ct_itrace_has_leftovers(pid_t pid)
{
  struct spaces spaces;
  bool has = find(pid, &spaces) == 0 && spaces.count != 0;
  drop(&spaces);
  return has;
}

/* Ranges are in the order of their addresses; the target can make as many of one mapping as it may have mappings. */
static bool
is_inside(const struct spaces *spaces, uint64_t address)
{
  size_t low = 0, high = spaces->range_count; /* the first one that ends after the address */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (spaces->ranges[middle][1] <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < spaces->range_count && address >= spaces->ranges[low][0];
}

/* Is there an address of ours on its stack? What cannot be read is taken for one. words: CHUNK_BYTES. */
static bool
stack_has_ours(const struct ct_stopped *stopped, const struct spaces *spaces, uint64_t sp, uint64_t *words)
{
  const struct ct_mapping *stack = ct_mappings_at(&spaces->mappings, sp);
  if (stack == NULL) {
    return false; /* it has none: no handler can have been called on it */
  }
  uint64_t at = sp & ~(uint64_t)7, end = stack->end - at > STACK_MAX ? at + STACK_MAX : stack->end;
  while (at < end) {
    size_t size = end - at < CHUNK_BYTES ? (size_t)(end - at) : CHUNK_BYTES;
    if (ct_process_read(stopped->process, at, words, size) != 0) {
      return true;
    }
    for (size_t i = 0; i < size / sizeof(words[0]); i++) {
      if (is_inside(spaces, words[i])) {
        return true;
      }
    }
    at += size;
  }
  return false;
}

/*
 * Without memory, or when that takes too long, it is said that somebody is. Words that happen to look like addresses of
 * ours are taken for them: a stack may lie in a heap that is full of hashes, as those of Go do. So it is not looked for
 * them where nobody was killed, and all threads have been released with the program's state.
 */
static bool
somebody_is_inside(const struct ct_stopped *stopped, const struct spaces *spaces, bool is_own)
{
  uint64_t *words = malloc(CHUNK_BYTES), begin = ct_now_ns();
  bool is_there = words == NULL;
  for (size_t i = 0; i < stopped->thread_count && !is_there; i++) {
    const struct ct_stopped_thread *thread = &stopped->threads[i];
    is_there = is_inside(spaces, thread->pc) || ct_now_ns() - begin > LOOK_NS ||
               (!is_own && stack_has_ours(stopped, spaces, thread->sp, words));
  }
  free(words);
  return is_there;
}

static int
take_out(struct ct_stopped *stopped, bool is_own, struct ct_itrace_leftovers *leftovers)
{
  struct spaces spaces;
  int code = find(stopped->process->pid, &spaces);
  if (code != 0 || spaces.count == 0) {
    goto drop_spaces;
  }
  code = ct_stopped_find_pcs(stopped, NULL, 0, (struct ct_inner_stacks){0});
  if (code != 0) {
    goto drop_spaces;
  }
  leftovers->kept = somebody_is_inside(stopped, &spaces, is_own);
  for (size_t i = 0, next; i < spaces.range_count && !leftovers->kept && code == 0; i = next) {
    for (next = i + 1; next < spaces.range_count && spaces.ranges[next][0] == spaces.ranges[next - 1][1]; next++) {
    }
    const uint64_t args[6] = {spaces.ranges[i][0], spaces.ranges[next - 1][1] - spaces.ranges[i][0]};
    int64_t result = -1;
    code = ct_stopped_syscall(stopped, SYS_munmap, args, &result);
    bool is_unmapped = code == 0 && result == 0;
    leftovers->mappings += is_unmapped;
    leftovers->bytes += is_unmapped ? args[1] : 0;
  }
drop_spaces:
  drop(&spaces);
  return code;
}

int
ct_itrace_take_out(struct ct_stopped *stopped, struct ct_itrace_leftovers *leftovers)
{
  return take_out(stopped, false, leftovers);
}

/* CT_EEXIST: somebody is at work there. */
static int
has_nobody(const struct ct_process *process, struct ct_diag *diag)
{
  struct spaces spaces;
  int code = find(process->pid, &spaces);
  if (code == 0 && is_alive(process, &spaces)) {
    code = ct_fail(diag, CT_EEXIST, "the instructions of process %d are being recorded; end that first",
                   (int)process->pid);
  }
  drop(&spaces);
  return code;
}

/* is_own: it was us, a moment ago, and nobody else has any of its threads if they all can be stopped. */
static int
clean(pid_t pid, bool is_own, struct ct_itrace_leftovers *leftovers, struct ct_diag *diag)
{
  struct ct_process process;
  struct ct_stopped stopped = {0};
  *leftovers = (struct ct_itrace_leftovers){0};
  if (!ct_itrace_has_leftovers(pid)) {
    return 0;
  }
  int code = ct_process_open(pid, &process, diag);
  if (code != 0) {
    return code;
  }
  code = is_own ? 0 : has_nobody(&process, diag);
  if (code != 0) {
    goto close_process;
  }
  code = ct_process_stop(&process, STOP_MS, &stopped, diag);
  if (code != 0) {
    goto close_process;
  }
  code = take_out(&stopped, is_own, leftovers);
  ct_process_resume(&stopped);
close_process:
  ct_process_close(&process, false);
  return code;
}

int
ct_itrace_clean(pid_t pid, struct ct_itrace_leftovers *leftovers, struct ct_diag *diag)
{
  return clean(pid, false, leftovers, diag);
}

int
ct_itrace_clean_own(pid_t pid, struct ct_itrace_leftovers *leftovers, struct ct_diag *diag)
{
  return clean(pid, true, leftovers, diag);
}
