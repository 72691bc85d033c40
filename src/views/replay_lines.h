/* SPDX-License-Identifier: MIT */
/*
 * The lines of replay, as text or JSON. Private to replay.c and replay_lines.c: the one decides
 * what is shown, the other how it looks.
 */
#ifndef CT_VIEWS_REPLAY_LINES_H
#define CT_VIEWS_REPLAY_LINES_H

#include "views/labels.h"
#include "views/prototypes.h"
#include "span/spans.h"

#include <stdio.h>

enum ct_line_kind {
  CT_LINE_OPEN,  /* a call with something inside */
  CT_LINE_LEAF,  /* a call and its end (text only) */
  CT_LINE_CLOSE, /* the end of a call */
  CT_LINE_TAIL,  /* JSON only: a call that took the place of another */
  CT_LINE_POINT,
  CT_LINE_ORPHAN,
  CT_LINE_COUNTED, /* calls that have no event */
  CT_LINE_LOST,
  CT_LINE_SWITCH,
  CT_LINE_EXEC,
  CT_LINE_CAPTURE, /* something that the program wrote: a line of it */
  CT_LINE_INTERVAL,
  CT_LINE_AWAY,  /* the thread was off the processor, or contrail's */
  CT_LINE_CRASH, /* the signal that ended the program: text, of JSON its members */
  CT_LINE_VALUE, /* an argument or result apart from its call, between whose events a handler came */
};

struct ct_line {
  enum ct_line_kind kind;
  uint64_t tsc;
  uint64_t ticks;      /* CLOSE, LEAF, TAIL: duration of what ended; AWAY: how long */
  uint64_t value;      /* LOST: events; SWITCH: context; POINT: calls; INTERVAL: of sampling */
  uint64_t id, parent; /* JSON: of the call that it is about, and of the one that this is in (span.h); 0: none */
  uint32_t level;      /* indentation */
  uint32_t depth;
  const struct ct_label *label; /* NULL for LOST, SWITCH, EXEC */
  const struct ct_label *other; /* CLOSE, LEAF: the function tail-called; TAIL: the one that ended; or NULL */
  uint64_t context;             /* JSON: the stack it is on, 0: the thread's own ... */
  bool on_other_stack;          /* ... which is not that of the lane: context is set already */
  uint8_t end;                  /* CLOSE, LEAF: enum ct_span_end; AWAY: enum ct_away */
  uint8_t which;                /* VALUE: enum ct_value */
  const struct ct_value_registers *detail; /* what is known of its values; NULL: nothing */
  const struct ct_detail *raw;             /* JSON: the same as it was recorded; NULL: none */
  bool uncertain;
  const char *text; /* PRINT: of so many bytes (value), to descriptor fd */
  uint32_t fd;
  bool before_trace; /* CLOSE: entered before the trace begins */
};

/* An id as it was written last. */
struct ct_id_text {
  uint64_t id;
  size_t length; /* 0: none was */
  char text[24];
};

struct ct_line_writer {
  struct ct_trace *trace;
  FILE *out;
  char *buffer;
  size_t length;
  size_t capacity;
  uint64_t start_ns;
  struct ct_view_prototypes prototypes;
  struct ct_value_text values;         /* of the line, being put together ... */
  struct ct_value_registers registers; /* ... and what they are made of */
  struct ct_value_context context;
  struct ct_id_text id, parent;
  bool json;
  bool failed; /* out cannot be written; errno was kept */
  int failed_errno;
};

int ct_lines_init(struct ct_line_writer *writer, struct ct_trace *trace, FILE *out, bool json); /* 0 or CT_ENOMEM */
void ct_lines_destroy(struct ct_line_writer *writer);
void ct_lines_warnings(struct ct_line_writer *writer); /* first of all */
void ct_lines_heading(struct ct_line_writer *writer, size_t thread_columns);
/* thread: the padded text of the column, or the tid for JSON. */
void ct_lines_put(struct ct_line_writer *writer, const char *thread, const struct ct_line *line);
/*
 * The call of an OPEN or TAIL line with its arguments, or the result of a CLOSE line (" = 1"); with a writer of JSON
 * their members, each after a comma. To be freed; NULL: out of memory.
 */
char *ct_lines_call_text(struct ct_line_writer *writer, const struct ct_line *line);
void ct_lines_flush(struct ct_line_writer *writer);

#endif
