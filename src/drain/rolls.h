/* SPDX-License-Identifier: MIT */
/*
 * Pre- and post-roll by events: a window begins with the event of the mark's thread that is so many before the mark,
 * and ends with the one so many after it. For that the times of a thread's last events are kept. See rolls.c.
 */
#ifndef CT_DRAIN_ROLLS_H
#define CT_DRAIN_ROLLS_H

#include "drain/windows.h"
#include "ring/layout.h"

struct drain_rolls; /* of one thread; NULL: none yet */

/* These events have come, a segment's at most. False: out of memory, and the thread's windows are as without. */
bool drain_rolls_take(struct drain_rolls **rolls, const struct ct_windows_limits *limits,
                      const struct ct_ring_event *events, size_t count);
/* A mark of the thread is about to be made: where its window begins, and that its end is still to come. */
void drain_rolls_mark(struct drain_rolls *rolls, struct ct_windows *windows, struct ct_mark *mark);
/* After the events that have been taken, with their marks, or (is_last) after the thread's last ones: ends the window
 * if they do. */
void drain_rolls_end(struct drain_rolls *rolls, struct ct_windows *windows, bool is_last);

#endif
