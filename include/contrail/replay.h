/* SPDX-License-Identifier: MIT */
/*
 * Replay: the calls of a trace in time order, of all threads merged or of some, as
 * indented text or as one JSON object a line. Streaming: what is kept is a block of events and the open frames for
 * each thread that lives at the moment shown.
 *
 *   a call with calls inside   name() {  ...  } name()   the duration stands on the closing line
 *   a call without             name();                   with its duration
 *   anything unusual           ends with "  -- " and what happened
 *
 * Filters choose lines. `function` chooses calls with what is called inside, on the same stack; `levels` counts from
 * these. What is not known before a call ends, its duration and its reason, is not looked for ahead: with one of these
 * filters the lines that describe an end are shown, those that match. So a call with calls inside is its closing line
 * alone, and comes after what it called.
 */
#ifndef CONTRAIL_REPLAY_H
#define CONTRAIL_REPLAY_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ct_replay_course {
  CT_REPLAY_GOES_ON = 0,
  CT_REPLAY_ENDS = 1,  /* nothing more is recorded: what is there is shown to its end */
  CT_REPLAY_STOPS = 2, /* nobody wants more: it ends in the middle */
};

struct ct_replay_options {
  size_t struct_size;
  const struct ct_filter *filter; /* which lines; NULL: all */
  bool json;
  struct ct_view_progress progress;
  bool no_output; /* what the program wrote to its standard output and error is left out */
  bool source;    /* text: where each function is written, after its name (JSON has it always) */
  enum ct_view_time time;
  /*
   * Of a recording that goes on (--live): what is recorded is shown when it is a fifth of a second old, until the trace
   * is complete or this says otherwise, which is asked twenty times a second. A call is a line of its own at its begin
   * when its end is not there yet. NULL: what there is when the replay begins. Not with a range; the trace is refreshed
   * (ct_trace_refresh).
   */
  enum ct_replay_course (*follow)(void *arg);
  void *follow_arg;
  bool short_names; /* text: long names shortened (ct_shorten_name) */
};

int ct_replay_write(struct ct_trace *trace, const struct ct_replay_options *options, FILE *out,
                    struct ct_view_notes *notes, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
