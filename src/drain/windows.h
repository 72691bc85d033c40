/* SPDX-License-Identifier: MIT */
/*
 * Marks and windows. A mark is a moment that matters: a rule's condition became true, or somebody asked. A window is
 * the stretch of time from `pre` before its first mark to `post` after its last one; windows that overlap or touch are
 * one. All functions are safe from several threads. See windows.c.
 */
#ifndef CT_DRAIN_WINDOWS_H
#define CT_DRAIN_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_WINDOW_REASONS    16u    /* of each window, the first ones */
#define CT_WINDOWS_MAX       10000u /* of a recording: no rule fills the memory */
#define CT_WINDOWS_OF_MINUTE 60u    /* unless said otherwise */

struct ct_windows; /* opaque */

struct ct_windows_limits {
  uint64_t pre, post;               /* in ticks of the time stamp counter */
  uint64_t pre_events, post_events; /* in place of these, for marks of threads (rolls.h); 0: no */
  uint64_t most;                    /* of time, for as many events */
  uint64_t minute;                  /* likewise */
  uint32_t per_minute;              /* windows that may be opened in one; 0: none */
  uint64_t bytes;                   /* on disk, after which none is opened */
};

struct ct_mark {
  uint64_t tsc;
  uint32_t thread;    /* index in the trace, UINT32_MAX: none */
  uint32_t rule;      /* of the session's list */
  uint32_t function;  /* id, UINT32_MAX: none */
  uint64_t begin_tsc; /* of its window; 0: by the pre-roll */
  bool is_open;       /* ct_windows_close says when it ends */
  /* Which call of the function it is about, 0: not known; when that began. By ct_windows_tell_call. */
  uint64_t call, call_tsc;
  enum ct_call_is { CT_CALL_EXACT = 0, CT_CALL_LEAST = 1, CT_CALL_ABOUT = 2 } call_is;
};

struct ct_marked_window {
  uint64_t begin, end; /* first and last reading of the clock that are in it */
  uint64_t marks;
  uint64_t least_end;  /* while ends are open: it ends no earlier ... */
  uint32_t open_count; /* ... and so many of them are */
  uint32_t reason_count;
  struct ct_mark reasons[CT_WINDOW_REASONS];
};

struct ct_windows_sums {
  uint64_t windows, marks, refused; /* marks: in windows; refused: over a limit, ... */
  uint64_t refused_size;            /* ... of these, over that of bytes */
  uint64_t bytes;                   /* that windows have on disk */
};

/* 0 or CT_ENOMEM. */
int ct_windows_create(const struct ct_windows_limits *limits, struct ct_windows **out);
void ct_windows_destroy(struct ct_windows *windows); /* accepts NULL */

/* False: it would open a window over the limit, and was counted as refused. A mark in or beside one is always taken. */
bool ct_windows_mark(struct ct_windows *windows, const struct ct_mark *mark);
/* Is the mark, which was taken, one of those that its window tells of? */
bool ct_windows_tell_of(struct ct_windows *windows, const struct ct_mark *mark);
/* ... then its window tells which call it is about. */
void ct_windows_tell_call(struct ct_windows *windows, const struct ct_mark *mark);
/* So many calls of the function at tsc come after that: later ones have a higher number. */
void ct_windows_call_comes_late(struct ct_windows *windows, uint32_t function, uint64_t tsc, uint64_t calls);
/* The window of an open mark of that time ends no later than at end_tsc, if no other one is open in it. */
void ct_windows_close(struct ct_windows *windows, uint64_t mark_tsc, uint64_t end_tsc);
/* The window of a mark of that time, if it begins at begin_tsc for it, begins later: at new_tsc. */
void ct_windows_begin_later(struct ct_windows *windows, uint64_t mark_tsc, uint64_t begin_tsc, uint64_t new_tsc);
/* A window overlaps this stretch, both ends included; its time may not be over yet. */
bool ct_windows_covers(struct ct_windows *windows, uint64_t from_tsc, uint64_t to_tsc);
/* The end of the window that this moment is in; 0: it is in none. */
uint64_t ct_windows_end_around(struct ct_windows *windows, uint64_t tsc);
/* Marks before now_tsc are all there: may one that comes open a window that reaches back to to_tsc? */
bool ct_windows_may_cover(struct ct_windows *windows, uint64_t to_tsc, uint64_t now_tsc);
/*
 * Copies count windows at most, from number `first` on (0 is the oldest), in the order of their times. Returns how
 * many. Two windows become one when a mark comes in between, so numbers hold once the recording is over.
 */
size_t ct_windows_get(struct ct_windows *windows, size_t first, struct ct_marked_window *out, size_t count);
/* What has been written because of windows: detail in all, and a dump more. */
void ct_windows_note_detail(struct ct_windows *windows, uint64_t bytes);
void ct_windows_note_dump(struct ct_windows *windows, uint64_t bytes);
/* They have all the bytes that they may have. */
bool ct_windows_are_full(struct ct_windows *windows);
const struct ct_windows_limits *ct_windows_limits(const struct ct_windows *windows);
void ct_windows_sums(struct ct_windows *windows, struct ct_windows_sums *sums);

#endif
