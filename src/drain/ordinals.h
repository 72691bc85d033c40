/* SPDX-License-Identifier: MIT */
/*
 * Which call of its function a call is: so many of those that are recorded began before it, in all threads, and one.
 * For functions that rules are about. All of it under the writer's lock. See ordinals.c.
 */
#ifndef CT_DRAIN_ORDINALS_H
#define CT_DRAIN_ORDINALS_H

#include "drain/windows.h"
#include "ring/layout.h"

#define ORDINALS_ABOUT (1ull << 62)         /* of a function's count: it is not exact, or where in it a call is */
#define ORDINALS_LATE  (1ull << 63)         /* ... there were calls before the first one that is counted */
#define ORDINALS_COUNT (ORDINALS_ABOUT - 1) /* the count itself */

struct drain_ordinals {
  uint64_t *calls;      /* of each function id, with the bits above; NULL: nothing is counted */
  uint64_t lost_tsc;    /* events have been lost, first after that; UINT64_MAX: none were */
  uint64_t told_tsc;    /* the latest call of which a window tells the number */
  uint32_t last_thread; /* index, UINT32_MAX: there was no call */
  bool is_several;      /* threads have made them */
  struct drain_recent *recent;
  uint64_t recent_count; /* so far; it has the last ones */
  uint64_t passed_tsc;   /* the latest one of those that it has no more */
};

/* False: out of memory. */
bool drain_ordinals_begin(struct drain_ordinals *ordinals);
void drain_ordinals_end(struct drain_ordinals *ordinals);
/* The function is counted from now on, and has been called before. */
void drain_ordinals_late(struct drain_ordinals *ordinals, uint32_t fn);
/* Events have been lost that were later than tsc. */
void drain_ordinals_lost(struct drain_ordinals *ordinals, uint64_t tsc);
/* A call of the thread, or one that stands for so many; returns its number in the order in which they come here. */
uint64_t drain_ordinals_count(struct drain_ordinals *ordinals, struct ct_windows *windows, uint32_t thread, uint32_t fn,
                              uint64_t tsc, uint64_t calls);
/* So many calls of some time not long ago. */
void drain_ordinals_counted(struct drain_ordinals *ordinals, uint32_t fn, uint64_t calls);
/* A mark is about the call that began at tsc with that number: the window, if it tells of the mark, tells which it was.
 */
void drain_ordinals_tell(struct drain_ordinals *ordinals, struct ct_windows *windows, const struct ct_mark *mark,
                         uint64_t number, uint64_t tsc);

#endif
