/* SPDX-License-Identifier: MIT */
/*
 * Filters: which calls, points, lines of output and other events of a trace are meant. One set of them for all that
 * reads traces, as the options of the commands have it.
 *
 *   struct ct_filter filter = {.struct_size = sizeof(filter), .function = "foo::*"};
 *   if (ct_filter_parse_duration("1ms", &filter.min_ns, &diag) == 0 &&
 *       ct_filter_parse_time(trace, "10:15:30", &filter.from_tsc, &diag) == 0 && ct_filter_set_range(&filter, trace) ==
 * 0)
 *     ...
 *
 * All filters that are set must hold. A member that is 0 or NULL is not set.
 * Who looks at single spans or events compiles the filter against the trace: names are then matched once per function.
 * What the filter points to (texts, lists) is the caller's, and lives as long as the filter and what was compiled of
 * it.
 */
#ifndef CONTRAIL_FILTER_H
#define CONTRAIL_FILTER_H

#include <contrail/error.h>
#include <contrail/span.h>
#include <contrail/trace.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of what a trace has, to be put together. */
enum ct_filter_type {
  CT_FILTER_CALL = 1,   /* a call with an end, and a return without its call */
  CT_FILTER_POINT = 2,  /* calls of which the end is not recorded: of enter-only functions, or counted only */
  CT_FILTER_OUTPUT = 4, /* what the program wrote */
  CT_FILTER_SWITCH = 8, /* the thread went to another stack or program, or was off the processor */
  CT_FILTER_LOST = 16,  /* events that were lost */
  CT_FILTER_CRASH = 32, /* the signal that ended the program */
  CT_FILTER_TYPES = 6,  /* so many there are */
};

struct ct_filter {
  size_t struct_size;
  uint64_t from_tsc, to_tsc; /* of time; see ct_filter_set_range */
  const uint32_t *tids;      /* of these threads; all when tid_count is 0 */
  size_t tid_count;
  const uint32_t *pids; /* of these processes of the tree; all when pid_count is 0 */
  size_t pid_count;
  const char *function; /* a pattern as of record --trace (select.h) */
  const char *module;   /* a glob: the path of the module, or the last part of it */
  const char *file;     /* as FILE in the pattern @file:FILE: where the function is written */
  uint64_t min_ns;      /* calls that took so long at least; points have no duration, and are out then ... */
  uint64_t max_ns;      /* ... at most */
  uint32_t levels;      /* so many levels of calls, from the outermost or from those that `function` chooses */
  bool has_depths;      /* depths, 0 the outermost, ... */
  uint32_t first_depth; /* ... from this ... */
  uint32_t last_depth;  /* ... to this one */
  uint32_t reasons;     /* how calls ended: bits 1 << enum ct_span_end */
  uint32_t types;       /* enum ct_filter_type, together */
  uint64_t limit;       /* so many of what the reader gives: rows, lines */
  uint64_t after;       /* replay: what comes after the first line of the call of this id (span.h) */
};

/* ---- texts, as the commands take them. 0, or CT_EINVAL with what is wrong, and the output as it was ---- */

/* "1.5ms": a number and ns, us, ms, s, m, h or d. More than 0. */
int ct_filter_parse_duration(const char *text, uint64_t *ns, struct ct_diag *diag);
/*
 * A moment, as a time of the trace: "1.5", seconds from the begin of the recording, or with a unit, "1500ms"; or by the
 * clock on the wall, in the local time zone: "2026-11-24T10:15:30.5" (a blank for the T is good too, and a Z at the end
 * makes it UTC), "10:15:30" or "10:15" of the recording's day (of the next one, if the recording went on to that).
 */
int ct_filter_parse_time(const struct ct_trace *trace, const char *text, uint64_t *tsc, struct ct_diag *diag);
/*
 * Two of them, the piece of the trace between which is from_tsc to to_tsc of the filter: what is shown as earlier than
 * `from`, or later than `to`, is not in it. NULL: as the filter has it. CT_ERANGE: it ends before it begins.
 */
int ct_filter_parse_piece(const struct ct_trace *trace, const char *from, const char *to, struct ct_filter *filter,
                          struct ct_diag *diag);
/* "returned,exception,tail call": as ct_span_end_text has them, also with "-" for the blanks. All there are: see diag.
 */
int ct_filter_parse_reasons(const char *text, uint32_t *reasons, struct ct_diag *diag);
/* "call,output": of call, point, output, switch, lost, crash. */
int ct_filter_parse_types(const char *text, uint32_t *types, struct ct_diag *diag);
/* "3": so many levels; "2..5", "2..", "..5": depths, into has_depths, first_depth and last_depth. */
int ct_filter_parse_depth(const char *text, struct ct_filter *filter, struct ct_diag *diag);

/* "call", ...; of one of enum ct_filter_type. "?" for none of them. */
const char *ct_filter_type_name(enum ct_filter_type type);

/* ---- a trace with a piece or a thread of it in its name ---- */

/*
 * DIR, DIR@FROM..TO (either side may be empty), DIR@window:N, DIR#TID, DIR@FROM..TO#TID, DIR#TID@FROM..TO; DIR may be
 * left out.
 */
struct ct_trace_form {
  size_t struct_size;
  char *directory; /* "": left out */
  char *from, *to; /* NULL: not given */
  bool has_tid;
  uint32_t tid;
  uint64_t window; /* from 1 on, in place of from and to; 0: not given */
};
/*
 * Takes a form apart; free with ct_trace_form_free. A text that is the name of a directory is that, whatever characters
 * it has. CT_EINVAL, CT_ENOMEM.
 */
int ct_trace_form_parse(const char *text, struct ct_trace_form *form, struct ct_diag *diag);
void ct_trace_form_free(struct ct_trace_form *form); /* accepts a zeroed one */

/* ---- a filter and a trace ---- */

/* From begin to end of the N-th window (from 1 on) of the trace. CT_ERANGE: there is no such window; CT_EFORMAT: no
 * sense. */
int ct_filter_choose_window(struct ct_filter *filter, const struct ct_trace *trace, uint64_t number,
                            struct ct_diag *diag);

/* Makes the trace begin and end where the filter says (ct_trace_set_range), if it says so. 0, CT_ENOMEM, CT_EINVAL. */
int ct_filter_set_range(const struct ct_filter *filter, struct ct_trace *trace);
/*
 * The trace of one process of a process tree, of which first is the first one's: *out goes to ct_trace_close, unless it
 * is first itself. CT_ERANGE: there is none of this process; and as ct_trace_open.
 */
int ct_filter_open_process(struct ct_trace *first, uint32_t pid, struct ct_trace **out, struct ct_diag *diag);

struct ct_filter_compiled; /* opaque: a filter made ready for one trace */
/*
 * *out goes to ct_filter_free_compiled, before the trace is closed. CT_EINVAL: a pattern makes no sense; CT_ERANGE: the
 * trace has no such thread; CT_ENOMEM. May be asked from any thread.
 */
int ct_filter_compile(const struct ct_filter *filter, struct ct_trace *trace, struct ct_filter_compiled **out,
                      struct ct_diag *diag);
void ct_filter_free_compiled(struct ct_filter_compiled *compiled); /* accepts NULL */
/* What `function`, `module` and `file` say of a function; of an id that the trace does not have too. */
bool ct_filter_has_function(struct ct_filter_compiled *compiled, uint32_t fn);
bool ct_filter_has_thread(const struct ct_filter_compiled *compiled, uint32_t tid);
/* What the rest says of a call that has ended: its duration, depth (not levels), end (enum ct_span_end) and type. */
bool ct_filter_has_call(const struct ct_filter_compiled *compiled, uint64_t ns, uint32_t depth, unsigned end);
/* Some calls are out for how long they took, or for their depth, end or type. */
bool ct_filter_is_about_calls(const struct ct_filter_compiled *compiled);

#ifdef __cplusplus
}
#endif

#endif
