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
#include <time.h>

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
    bool is_used; /* a thread is in there, or will come back to it */
  } *items;
  size_t count;
  struct range {
    uint64_t start, end;
    size_t space;
  } *ranges; /* each of their mappings */
  size_t range_count;
};

static bool
has_name(const struct ct_mapping *mapping)
{
  static const char name[] = "/memfd:contrail ";
  return mapping->shared && strncmp(mapping->path, name, sizeof(name) - 1) == 0;
}

/* The number of the space that it is of; spaces->count: of none. */
static size_t
space_of(const struct spaces *spaces, const struct ct_mapping *mapping)
{
  size_t i = has_name(mapping) ? 0 : spaces->count;
  while (i < spaces->count && spaces->items[i].inode != mapping->inode) {
    i++;
  }
  return i;
}

static int
find_ranges(struct spaces *spaces)
{
  spaces->ranges = calloc(spaces->mappings.count + 1, sizeof(*spaces->ranges));
  for (size_t i = 0; i < spaces->mappings.count && spaces->ranges != NULL; i++) {
    const struct ct_mapping *mapping = &spaces->mappings.items[i];
    size_t space = space_of(spaces, mapping);
    if (space < spaces->count) {
      spaces->ranges[spaces->range_count++] = (struct range){mapping->start, mapping->end, space};
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

/* If the address is in one, that one is in use. Ranges are in the order of their addresses; the target can make as many
 * of one mapping as it may have mappings. */
static void
note_address(struct spaces *spaces, uint64_t address)
{
  size_t low = 0, high = spaces->range_count; /* the first one that ends after the address */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (spaces->ranges[middle].end <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low < spaces->range_count && address >= spaces->ranges[low].start) {
    spaces->items[spaces->ranges[low].space].is_used = true;
  }
}

static void
note_all(struct spaces *spaces)
{
  for (size_t i = 0; i < spaces->count; i++) {
    spaces->items[i].is_used = true;
  }
}

/* Addresses of ours on its stack. What cannot be read may have any. words: CHUNK_BYTES. */
static void
note_stack(const struct ct_stopped *stopped, struct spaces *spaces, uint64_t sp, uint64_t *words)
{
  const struct ct_mapping *stack = ct_mappings_at(&spaces->mappings, sp);
  if (stack == NULL) {
    return; /* it has none: no handler can have been called on it */
  }
  uint64_t at = sp & ~(uint64_t)7, end = stack->end - at > STACK_MAX ? at + STACK_MAX : stack->end;
  while (at < end) {
    size_t size = end - at < CHUNK_BYTES ? (size_t)(end - at) : CHUNK_BYTES;
    if (ct_process_read(stopped->process, at, words, size) != 0) {
      note_all(spaces);
      return;
    }
    for (size_t i = 0; i < size / sizeof(words[0]); i++) {
      note_address(spaces, words[i]);
    }
    at += size;
  }
}

/*
 * Each thread has spaces of its own, so one that waits in one of them is no reason to keep another's. Without memory,
 * or when that takes too long, all are taken to be in use. Words that happen to look like addresses of ours are taken
 * for them: a stack may lie in a heap that is full of hashes, as those of Go do. So it is not looked for them where
 * nobody was killed, and all threads have been released with the program's state.
 */
static void
note_used(const struct ct_stopped *stopped, struct spaces *spaces, bool is_own)
{
  uint64_t *words = malloc(CHUNK_BYTES), begin = ct_now_ns();
  for (size_t i = 0; i < stopped->thread_count && words != NULL; i++) {
    const struct ct_stopped_thread *thread = &stopped->threads[i];
    note_address(spaces, thread->pc);
    if (!is_own) {
      note_stack(stopped, spaces, thread->sp, words);
    }
    if (ct_now_ns() - begin > LOOK_NS) {
      note_all(spaces);
      break;
    }
  }
  if (words == NULL) {
    note_all(spaces);
  }
  free(words);
}

static bool
is_used(const struct spaces *spaces, size_t range)
{
  return spaces->items[spaces->ranges[range].space].is_used;
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
  note_used(stopped, &spaces, is_own);
  for (size_t i = 0, next; i < spaces.range_count && code == 0; i = next) {
    next = i + 1;
    if (is_used(&spaces, i)) {
      leftovers->kept = true;
      continue;
    }
    for (; next < spaces.range_count && spaces.ranges[next].start == spaces.ranges[next - 1].end &&
           !is_used(&spaces, next);
         next++) {
    }
    const uint64_t args[6] = {spaces.ranges[i].start, spaces.ranges[next - 1].end - spaces.ranges[i].start};
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

void
ct_itrace_clean_before(pid_t pid)
{
  enum { TRIES = 4 };
  struct timespec wait = {0, 100000000};
  struct ct_itrace_leftovers left = {.kept = true};
  struct ct_diag diag;
  for (int tries = 0; tries < TRIES && left.kept; tries++) {
    if (tries != 0) {
      nanosleep(&wait, NULL);
    }
    if (ct_itrace_clean(pid, &left, &diag) != 0) {
      break;
    }
  }
}
