/* SPDX-License-Identifier: MIT */
/*
 * Inside replay: each thread is a lane, a cursor and the stacks of its open frames. A heap gives the lane whose next
 * event is the earliest.
 */
#ifndef CT_VIEWS_REPLAY_INTERNAL_H
#define CT_VIEWS_REPLAY_INTERNAL_H

#include <contrail/replay.h>

#include "trace/batch.h"
#include "views/labels.h"
#include "views/replay_lines.h"
#include "span/id.h"
#include "span/spans.h"
#include "span/stacks.h"
#include "span/unwind_reason.h"

enum replay_frame_flags {
  REPLAY_SHOWN = 1,      /* has a line */
  REPLAY_SELECTED = 2,   /* the function filter lets it and what is below it through */
  REPLAY_WRITTEN = 4,    /* a leaf whose line is out */
  REPLAY_BEFORE = 8,     /* open when the recording began */
  REPLAY_UNCERTAIN = 16, /* events were lost while it was open; an event that ends it says as well */
};

enum { COLUMN_CHARS = 64, RESULTS_MAX = 8, RESULT_VALUES_MAX = 5, DETAIL_STACK_BYTES = 512 };
#define NO_CAPTURE SIZE_MAX

/* What a call gives, reported before its return. In between there may be a handler's calls. */
struct result {
  uint64_t context;
  uint32_t depth;
  uint32_t count;
  struct ct_event values[RESULT_VALUES_MAX];
};

struct lane {
  struct ct_cursor *cursor; /* NULL before its first event is due */
  const struct ct_event *events;
  size_t count;               /* 0: no more */
  size_t held;                /* events that are not looked at before functions that they name have been taken in */
  size_t pos;                 /* of the next event */
  uint64_t next_tsc;          /* of the next event or what the thread wrote, whichever comes first */
  uint64_t event_tsc;         /* of the next event; after the last one of the end; UINT64_MAX: that has been too */
  uint64_t last_tsc;          /* of the event taken last, or of the end */
  bool is_read;               /* to the end of the stream; the cursor is closed */
  bool has_ended;             /* and what was open has been shown */
  struct ct_span_clock clock; /* at the event taken last */
  uint64_t crash_tsc;         /* when a signal that came to the thread ended the program; 0: none, or it was shown */
  uint64_t capture_tsc;       /* of what the thread wrote, the last that was shown */
  size_t capture;             /* position of the next thing that the thread wrote, NO_CAPTURE: none */
  uint64_t published_bytes;   /* to the progress line */
  uint32_t thread;
  struct ct_span_lane ids;
  struct ct_details *details;       /* NULL: none, or not open */
  struct ct_value_registers detail; /* what is known of the event taken last, when has_detail: from both lanes */
  bool has_detail;
  const struct ct_detail *raw; /* the same, as long as no other is asked for; or NULL */
  uint8_t detail_stack[DETAIL_STACK_BYTES];
  uint64_t next_ordinal;              /* of the next call ... */
  uint64_t before;                    /* ... or, of frames that nobody counted, where it lies; 0: it is not one */
  uint64_t ordinal;                   /* of the event taken last, CT_NO_ORDINAL: it is no call */
  bool is_before;                     /* ... and it was open when the recording began */
  struct result results[RESULTS_MAX]; /* whose returns are to come, the innermost last */
  uint32_t result_count;
  uint64_t context; /* after that event */
  struct ct_span_stacks stacks;
  uint32_t silent; /* replay_live.c: rounds in a row without anything of a thread that has exited */
  bool is_named;   /* replay_live.c: the column has the name */
  char column[COLUMN_CHARS];

  uint8_t *wanted; /* granules of the index that are read; NULL: all is read */
  size_t granule_count;
  size_t next_granule;  /* the first one that has not begun ... */
  uint64_t next_offset; /* ... and where it does; UINT64_MAX: there is none */
  size_t landing;
  bool has_landed;
  bool lands; /* the next event is the first one of a granule after some that were passed over */
};

/*
 * Who takes lines in place of the writer: those of selected calls, with all that is inside of them on the same stack.
 * Lines are as for JSON: no leaves, one TAIL for both halves. What they point to lives until line returns.
 */
struct replay_sink {
  bool (*wants)(void *arg, uint32_t thread, uint64_t ordinal);
  int (*line)(void *arg, const struct lane *lane, const struct ct_line *line); /* 0, or an error, which ends it */
  /* Of a wanted call that is entered: where it is known what the thread's clock is then, it becomes that. NULL: never.
   */
  void (*set_clock)(void *arg, uint32_t thread, uint64_t ordinal, struct ct_span_clock *clock);
  bool (*is_done)(void *arg); /* nothing more is wanted */
  void *arg;
};

struct ct_index;
struct ct_view_pattern;

struct replay {
  struct ct_trace *trace;
  struct ct_index *index;   /* of what may be passed over; NULL: nothing is */
  uint8_t *index_functions; /* that it is asked about; NULL: about ends of calls, losses and moments */
  const struct ct_replay_options *options;
  struct ct_view_notes *notes;
  struct ct_labels labels;
  struct ct_unwind_reason unwind_reason;
  struct ct_line_writer lines;
  const struct replay_sink *sink; /* NULL: lines are written */
  bool is_cancelled;              /* by the progress's update */
  int sink_code;
  char *crash_text; /* NULL: there was no such signal */
  uint64_t crash_tsc;
  uint32_t crash_tid;
  struct ct_captures captures;
  size_t *next_capture; /* of each, the next one of the same thread */
  struct lane *lanes;
  size_t lane_count;
  struct lane **heap;
  size_t heap_count;
  uint64_t line_count;
  /* With options->follow; replay_live.c. */
  bool is_live;            /* the trace may still grow */
  uint64_t until;          /* lines up to that time are due; UINT64_MAX: all */
  struct lane **live;      /* lane_count of them, in place of lanes */
  uint64_t captures_bytes; /* of the file, when it was read */
  struct ct_view_pattern *pattern;
  bool is_filtered;     /* lines are looked at one by one */
  bool is_before_after; /* the call of filter->after has not come yet */
  uint64_t done_bytes;
  uint64_t total_bytes;
};

/* replay.c. options: as of ct_replay_write, taken; with JSON. */
int ct_replay_selected(struct ct_trace *trace, const struct ct_replay_options *options, const struct replay_sink *sink,
                       struct ct_view_notes *notes, struct ct_diag *diag);

/*
 * replay_index.c. Where only some calls are shown and there is an index, which granules have some of them, or else
 * something to be shown. 0, CT_ENOMEM, CT_EFORMAT.
 */
int replay_index_open(struct replay *r, struct ct_view_pattern *pattern, struct ct_diag *diag);
int replay_index_lane(const struct replay *r, struct lane *lane, struct ct_diag *diag);
/* The lane's cursor is at the begin. */
void replay_index_begin(const struct replay *r, struct lane *lane);
void replay_index_close(struct replay *r);
/* After a batch was read: one of a granule that is not wanted becomes the first one of the next that is, or the end. */
void replay_pass_over(struct replay *r, struct lane *lane);
/* Before the first event of such a one: the open calls and the clock become what they are there. 0 or an error. */
int replay_land(struct replay *r, struct lane *lane);
/*
 * After that: a cursor that began in the middle does not know the frames of other stacks than the one that it began on.
 * An end of one of them gets what is known here.
 */
void replay_fill(struct lane *lane, struct ct_event *event);

/* replay.c. Decides about a frame from the one above it (NULL: none) and the filters. */
void replay_classify(const struct replay *r, const struct lane *lane, struct ct_span_frame *frame,
                     const struct ct_span_frame *above, const struct ct_label *label, uint32_t depth);
/* Only lines that describe an end can pass: what is asked for is not known before. */
bool replay_is_about_ends(const struct replay *r);

/* Merges the lanes of the heap, as far as `until`. 0, or an error with diag. */
int replay_merge(struct replay *r, struct ct_diag *diag);
/* The lane's name in text, or in JSON; and blanks after it, up to so many columns. */
void replay_name_lane(const struct replay *r, struct lane *lane);
void replay_pad_lane(struct lane *lane, size_t columns);

/* replay_live.c: the whole course of a replay that follows a recording. */
int replay_live(struct replay *r, struct ct_diag *diag);

/* replay_crash.c */
int replay_load_crash(struct replay *r); /* 0 or CT_ENOMEM */
uint64_t replay_crash_of(const struct replay *r, uint32_t tid);

/* replay_lanes.c */
/* What was written, each piece with the next one of its thread. A file that cannot be read is as none. 0 or CT_ENOMEM.
 */
int replay_load_captures(struct replay *r);
/* NO_CAPTURE: the thread wrote nothing. */
size_t replay_first_capture(const struct replay *r, uint32_t tid);
/* After a change of what the lane shows next (capture, event_tsc): brings next_tsc up to date. */
void replay_note_next(const struct replay *r, struct lane *lane);
/* Those of the threads that are chosen, in a heap by when they are due. */
int replay_make_lanes(struct replay *r, struct ct_diag *diag);
/* What stands before their lines; *columns: the widest. */
void replay_name_lanes(struct replay *r, size_t *columns);
/* 0, or an error of ct_cursor_open. */
int replay_open_lane(struct replay *r, struct lane *lane, struct ct_diag *diag);
/* Of a lane that has no events at hand: looks for more. */
void replay_refill(struct replay *r, struct lane *lane);
/* Takes the next event and its values; the one after it can be looked at then, without the first being lost. */
void replay_take(struct replay *r, struct lane *lane, struct ct_event *event);
/* Results that came after the event before them had been taken, of a trace that grows: for the return to come. */
void replay_take_late_results(struct replay *r, struct lane *lane);
/* Adds the detail of an event that returns to that of its call, when it has any: of the next event. */
void replay_add_result_detail(struct lane *lane, const struct ct_event *event);
/* What a call has given, to what is known of the event. */
void replay_add_result(struct lane *lane, const struct result *result);
/* The values of the event taken last, and what was added to them. */
void replay_put_values(const struct lane *lane, struct ct_line *line);
/* The next event; NULL: there is no more, or what comes next is unknown, because it is passed over. */
static inline const struct ct_event *
replay_peek(const struct lane *lane)
{
  return lane->count != 0 && !lane->lands ? &lane->events[lane->pos] : NULL;
}

void replay_close_lane(struct replay *r, struct lane *lane);
/* The heap's order, and its repair from entry i down. */
static inline bool
replay_earlier(const struct lane *a, const struct lane *b)
{
  if (a->next_tsc != b->next_tsc) {
    return a->next_tsc < b->next_tsc;
  }
  return a->thread < b->thread;
}

void replay_sift_down(struct replay *r, size_t i);
/* The lane that comes after the first one; NULL when there is one lane only. */
static inline const struct lane *
replay_second(const struct replay *r)
{
  if (r->heap_count < 2) {
    return NULL;
  }
  if (r->heap_count == 2 || replay_earlier(r->heap[1], r->heap[2])) {
    return r->heap[1];
  }
  return r->heap[2];
}

/* The result that is known of a frame at this depth of the current stack; NULL when none is. */
const struct result *replay_result_at(const struct lane *lane, uint32_t depth);

#endif
