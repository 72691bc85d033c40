/* SPDX-License-Identifier: MIT */
/*
 * A recording that goes on, function by function: how often each was called and how long it took, since the start and
 * since the last look. What `contrail top` shows.
 *
 *   struct ct_live *live;
 *   if (ct_live_open("contrail.out", &live, &diag) == 0)
 *     while (ct_live_poll(live, budget_ns, &state, &diag) == 0 && !state.ended)
 *       if (ct_live_rows(live, CT_LIVE_LAST_SELF, NULL, &count, &diag) == 0)
 *         ... ct_live_row(live, 0 to count - 1) ...
 *
 * Calls count when they end, as in the report; those that are open are counted apart, and the self time that they have
 * had so far is in the self times. Times are a thread's own (CT_TIME_WALL). A call is seen some 50 ms after it, and
 * later where the reading does not keep up: then state.bytes_left is not 0, and what is "last" is not of the last
 * stretch of the program's time.
 */
#ifndef CONTRAIL_LIVE_H
#define CONTRAIL_LIVE_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_live; /* opaque; of one thread at a time */

/*
 * Opens the trace of a recording; one that is complete will do. CT_EUNSUPPORTED: it keeps the last stretch only, in
 * memory or in files that go, or is of another format. *out goes to ct_live_close.
 */
int ct_live_open(const char *directory, struct ct_live **out, struct ct_diag *diag);
void ct_live_close(struct ct_live *live); /* accepts NULL */

struct ct_live_state {
  size_t struct_size;    /* to be set to sizeof(struct ct_live_state) */
  bool ended;            /* the recording has ended, and all of it was read */
  uint64_t events;       /* calls and returns that were read */
  uint64_t lost;         /* events that the trace says are missing */
  uint64_t bytes_left;   /* of the threads' files, that were not read for want of time */
  uint64_t last_ns;      /* how long ago the look before this one began; 0: this is the first one */
  bool last_is_known;    /* what is "last" is of that time: this look and the one before read all there was */
  uint64_t threads;      /* of the trace */
  uint64_t threads_left; /* of them, those not looked at: there is no memory for so many at a time */
  uint64_t damaged;      /* threads whose file is damaged: what comes before that place is here */
};
/*
 * Reads what was recorded since the last look, for about budget_ns; 0: all there is. After an error the live view can
 * only be closed. CT_ENOMEM, CT_EIO.
 */
int ct_live_poll(struct ct_live *live, uint64_t budget_ns, struct ct_live_state *state, struct ct_diag *diag);

/* A function that was called. Texts live until ct_live_close, names are as the program has them. */
struct ct_live_row {
  const char *name, *module;
  uint64_t calls, self_ns, p99_ns;                /* since the start */
  uint64_t last_calls, last_self_ns, last_p99_ns; /* since the look before this one */
  uint64_t open;                                  /* calls that have not ended, not among `calls` */
  bool is_sampled;                                /* for some of the calls there is no event each */
  bool has_p99;      /* there are calls whose durations are known; without, p99_ns is 0 ... */
  bool has_last_p99; /* ... and likewise since that look */
};

enum ct_live_sort {
  CT_LIVE_LAST_SELF = 0,
  CT_LIVE_LAST_CALLS,
  CT_LIVE_LAST_P99,
  CT_LIVE_SELF,
  CT_LIVE_CALLS,
  CT_LIVE_P99,
  CT_LIVE_NAME, /* ascending, all others descending */
  CT_LIVE_SORTS,
};
/* "last-self", ...; NULL for none of them. */
const char *ct_live_sort_name(enum ct_live_sort sort);

/*
 * Makes the rows of what was read, of functions that the pattern (of record --trace; NULL: all) matches. *count of
 * them; they stay until the next call of this or ct_live_poll. CT_EINVAL: a wrong pattern; CT_ENOMEM.
 */
int ct_live_rows(struct ct_live *live, enum ct_live_sort sort, const char *pattern, size_t *count,
                 struct ct_diag *diag);
const struct ct_live_row *ct_live_row(const struct ct_live *live, size_t n);

struct ct_live_thread {
  uint32_t tid;
  const char *name;             /* "" when it is not known */
  uint64_t events, last_events; /* calls and returns that were read, likewise */
  uint64_t open;                /* calls that have not ended */
};
/* n from 0 on; false: there is no such thread. */
bool ct_live_thread(const struct ct_live *live, size_t n, struct ct_live_thread *thread);

#ifdef __cplusplus
}
#endif

#endif
