/* SPDX-License-Identifier: MIT */
/*
 * slowest DIR FUNCTION: for each thread of a trace how often a function was called, and its longest call. Events have
 * the clock's own times: what contrail report --raw shows, with the cost of the hooks in them.
 *
 *   cc slowest.c $(pkg-config --cflags --libs contrail)
 */
#include <contrail/contrail.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct slowest {
  uint64_t calls;
  uint64_t longest_ns;
  uint64_t begin_ns; /* of the longest one, since the recording began */
};

static void
look_at(struct ct_trace *trace, const struct ct_event *event, const char *name, struct slowest *slowest)
{
  uint32_t fn = event->kind == CT_EV_TAIL ? event->closed_fn : event->fn;
  const struct ct_trace_function *function = ct_trace_function(trace, fn);
  if (function == NULL || strcmp(function->name, name) != 0) {
    return;
  }
  switch (event->kind) {
  case CT_EV_RETURN: /* these end a call, which the event itself tells the begin of */
  case CT_EV_TAIL:
  case CT_EV_UNWOUND:
    break;
  case CT_EV_POINT: /* of these only the begin is known */
    slowest->calls++;
    return;
  default:
    return;
  }
  uint64_t ns = ct_trace_ticks_ns(trace, event->tsc - event->enter_tsc);
  slowest->calls++;
  if (ns >= slowest->longest_ns) {
    slowest->longest_ns = ns;
    slowest->begin_ns = ct_trace_ns(trace, event->enter_tsc) - ct_trace_start_ns(trace);
  }
}

static int
read_thread(struct ct_trace *trace, uint32_t index, const char *name)
{
  struct ct_diag diag;
  struct ct_cursor *cursor;
  struct slowest slowest = {0};
  if (ct_cursor_open(trace, index, 0, &cursor, &diag) != 0) {
    fprintf(stderr, "slowest: %s\n", diag.text);
    return 1;
  }
  const struct ct_event *event;
  while ((event = ct_cursor_next_event(cursor)) != NULL) {
    look_at(trace, event, name, &slowest);
  }
  int damaged = ct_cursor_state(cursor) == CT_CURSOR_DAMAGED;
  ct_cursor_close(cursor);

  char longest[CT_DURATION_CHARS], begin[CT_DURATION_CHARS];
  if (slowest.calls != 0) {
    printf("thread %" PRIu32 ": %" PRIu64 " calls, the longest %s, at %s\n", ct_trace_thread(trace, index)->tid,
           slowest.calls, ct_format_duration(longest, slowest.longest_ns), ct_format_duration(begin, slowest.begin_ns));
  }
  if (damaged) {
    fprintf(stderr, "slowest: the file of thread %" PRIu32 " is damaged\n", ct_trace_thread(trace, index)->tid);
  }
  return damaged;
}

int
main(int argc, char **argv)
{
  struct ct_diag diag;
  struct ct_trace *trace;
  if (argc != 3) {
    fputs("usage: slowest DIR FUNCTION\n", stderr);
    return 2;
  }
  if (ct_trace_open(argv[1], &trace, &diag) != 0) {
    fprintf(stderr, "slowest: %s\n", diag.text);
    return 1;
  }
  int failed = 0;
  for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
    failed |= read_thread(trace, i, argv[2]);
  }
  ct_trace_close(trace);
  return failed;
}
