/* SPDX-License-Identifier: MIT */
/* The slowest calls of a trace that has an index, found without reading all of it. */
#ifndef CT_VIEWS_SLOWEST_INDEX_H
#define CT_VIEWS_SLOWEST_INDEX_H

#include <contrail/slowest.h>

#include "views/replay_internal.h"

struct ct_slow_call {
  uint64_t key; /* ticks that it is selected by */
  uint64_t ordinal, enter_tsc;
  uint64_t end_tsc; /* of a call found by the index: what is to be read for its tree, from the enter to here ... */
  struct ct_span_clock clock; /* ... and the thread's clock when it was entered */
  uint32_t process, thread, fn;
  size_t root; /* its place among those of its process */
};

/*
 * The so many slowest calls, the slowest first, and how many have an enter only. false: the index cannot tell (there is
 * none, it does not have this time, the trace has lost events or calls without a duration), and nothing else has
 * happened.
 */
bool ct_slowest_from_index(struct ct_trace *trace, const struct ct_slowest_options *options, size_t limit,
                           struct ct_slow_call *calls, size_t *count, uint64_t *enter_only);

/* What ct_replay_selected gives of these calls, of the pieces of the trace that they lie in. 0, or an error with a
 * line.
 */
int ct_slowest_replay_pieces(const struct ct_trace *trace, const struct ct_slow_call *calls, size_t count,
                             const struct ct_replay_options *options, const struct replay_sink *sink,
                             struct ct_diag *diag);

#endif
