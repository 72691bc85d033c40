/* SPDX-License-Identifier: MIT */
/*
 * Calls come here thread by thread, some milliseconds each, so the order in which they come is theirs only where one
 * thread makes them all. A call's frame has its number in that order. When a mark tells of the call, what came out of
 * order is looked for among the last RECENT calls of all:
 *
 *   comes as     1    2    3    4    5         of one function; 1, 2 and 5 are of one thread, 3 and 4 of another
 *   began at    10   50   20   60   30
 *
 *   a mark of 3, after all of them: 3 less one (2 came before it and is later) is the second one
 *   a mark of 5, likewise: 5 less two (2 and 4) is the third one
 *   a mark of 4, before 5 came: the fourth. When 5 comes the windows that tell of later calls are corrected: the fifth
 *
 * Where calls that are not among the last any more may be later than the one at hand, its number is not exact.
 */
#include "drain/ordinals.h"

#include <sys/mman.h>

#define RECENT      (1u << 18)
#define CALLS_BYTES (((size_t)CT_FN_MAX + 1) * sizeof(uint64_t))

struct drain_recent {
  uint64_t tsc;
  uint32_t fn;
  uint32_t number; /* low half */
};

static void *
reserve(size_t bytes)
{
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at != MAP_FAILED ? at : NULL;
}

bool
drain_ordinals_begin(struct drain_ordinals *ordinals)
{
  if (ordinals->calls != NULL) {
    return true;
  }
  *ordinals = (struct drain_ordinals){.lost_tsc = UINT64_MAX, .last_thread = UINT32_MAX};
  ordinals->calls = reserve(CALLS_BYTES);
  ordinals->recent = reserve(RECENT * sizeof(*ordinals->recent));
  if (ordinals->calls == NULL || ordinals->recent == NULL) {
    drain_ordinals_end(ordinals);
    return false;
  }
  return true;
}

void
drain_ordinals_end(struct drain_ordinals *ordinals)
{
  if (ordinals->calls != NULL) {
    munmap(ordinals->calls, CALLS_BYTES);
  }
  if (ordinals->recent != NULL) {
    munmap(ordinals->recent, RECENT * sizeof(*ordinals->recent));
  }
  *ordinals = (struct drain_ordinals){0};
}

void
drain_ordinals_late(struct drain_ordinals *ordinals, uint32_t fn)
{
  ordinals->calls[fn] |= ORDINALS_LATE;
}

void
drain_ordinals_lost(struct drain_ordinals *ordinals, uint64_t tsc)
{
  ordinals->lost_tsc = tsc < ordinals->lost_tsc ? tsc : ordinals->lost_tsc;
}

uint64_t
drain_ordinals_count(struct drain_ordinals *ordinals, struct ct_windows *windows, uint32_t thread, uint32_t fn,
                     uint64_t tsc, uint64_t calls)
{
  uint64_t *count = &ordinals->calls[fn], number = (*count & ORDINALS_COUNT) + 1;
  struct drain_recent *recent = &ordinals->recent[ordinals->recent_count++ % RECENT];
  *count = (*count + calls) | (calls != 1 ? ORDINALS_ABOUT : 0);
  ordinals->passed_tsc = recent->tsc > ordinals->passed_tsc ? recent->tsc : ordinals->passed_tsc;
  *recent = (struct drain_recent){tsc, fn, (uint32_t)number};
  ordinals->is_several |= ordinals->last_thread != thread && ordinals->last_thread != UINT32_MAX;
  ordinals->last_thread = thread;
  if (tsc < ordinals->told_tsc) {
    ct_windows_call_comes_late(windows, fn, tsc, calls);
  }
  return number;
}

void
drain_ordinals_counted(struct drain_ordinals *ordinals, uint32_t fn, uint64_t calls)
{
  ordinals->calls[fn] = (ordinals->calls[fn] + calls) | ORDINALS_ABOUT;
}

/* The number in the order of the times, as far as calls have come. */
static uint64_t
in_order(const struct drain_ordinals *ordinals, uint32_t fn, uint64_t number, uint64_t tsc)
{
  uint64_t count = ordinals->recent_count < RECENT ? ordinals->recent_count : RECENT, before = 0, after = 0;
  for (uint64_t i = 0; i < count; i++) {
    const struct drain_recent *at = &ordinals->recent[i];
    int32_t since = (int32_t)(at->number - (uint32_t)number);
    before += at->fn == fn && since > 0 && at->tsc < tsc;
    after += at->fn == fn && since < 0 && at->tsc > tsc;
  }
  return number + before - after;
}

void
drain_ordinals_tell(struct drain_ordinals *ordinals, struct ct_windows *windows, const struct ct_mark *mark,
                    uint64_t number, uint64_t tsc)
{
  if (number == 0 || !ct_windows_tell_of(windows, mark)) {
    return;
  }
  uint64_t bits = ordinals->calls[mark->function], now = __builtin_ia32_rdtsc();
  bool is_known = !ordinals->is_several || ordinals->passed_tsc <= tsc;
  struct ct_mark told = *mark;
  told.call = ordinals->is_several && is_known ? in_order(ordinals, mark->function, number, tsc) : number;
  told.call_tsc = tsc < now ? tsc : now; /* it comes from the target */
  told.call_is = !is_known || (bits & ORDINALS_ABOUT) != 0 ? CT_CALL_ABOUT
                 : (bits & ORDINALS_LATE) != 0             ? CT_CALL_LEAST
                                                           : CT_CALL_EXACT;
  ordinals->told_tsc = told.call_tsc > ordinals->told_tsc ? told.call_tsc : ordinals->told_tsc;
  ct_windows_tell_call(windows, &told);
}
