/* SPDX-License-Identifier: MIT */
/*
 * How a line of replay looks; see replay_lines.h. Text:
 *
 *          time  thread      duration  calls
 *   0.000012345  prog/4711             main() {
 *   0.000012900  prog/4711     120 ns    helper();
 *   0.000013400  prog/4711   1.055 us  } main()
 *
 * Lines are put together in a buffer by hand: formatted output would be most of the time
 * of a replay.
 */
#include "views/replay_lines.h"

#include "trace/format.h"
#include "views/line_put.h"
#include "views/text.h"
#include "views/warnings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  BUFFER_BYTES = 64 * 1024,
  FIXED_BYTES = 1024, /* all of a line but indentation and labels */
  MAX_INDENT = 400,   /* levels; deeper ones are not indented further */
};

int
ct_lines_init(struct ct_line_writer *writer, struct ct_trace *trace, FILE *out, bool json)
{
  *writer = (struct ct_line_writer){.trace = trace, .out = out, .json = json, .capacity = BUFFER_BYTES};
  writer->start_ns = ct_trace_start_ns(trace);
  ct_view_prototypes_init(&writer->prototypes, trace);
  writer->buffer = malloc(BUFFER_BYTES);
  return writer->buffer != NULL ? 0 : CT_ENOMEM;
}

void
ct_lines_destroy(struct ct_line_writer *writer)
{
  free(writer->buffer);
  writer->buffer = NULL;
  ct_view_prototypes_destroy(&writer->prototypes);
  ct_value_text_free(&writer->values);
}

static uint64_t
since_start_ns(const struct ct_line_writer *w, uint64_t tsc)
{
  uint64_t ns = ct_trace_ns(w->trace, tsc);
  return ns > w->start_ns ? ns - w->start_ns : 0;
}

/* "   120 ns" or "12.34 us" in ten columns; the frequent case, below 1 us, by hand. */
static void
put_duration(struct ct_line_writer *w, uint64_t ns)
{
  if (ns < 1000) {
    put_number(w, ns, 7, ' ');
    put_literal(w, " ns");
    return;
  }
  char buf[CT_DURATION_CHARS];
  ct_format_duration(buf, ns);
  size_t length = strlen(buf);
  if (length < 10) {
    put_spaces(w, 10 - length);
  }
  put(w, buf, length);
}

void
ct_lines_heading(struct ct_line_writer *w, size_t thread_columns)
{
  if (w->json) {
    return;
  }
  put_literal(w, "      time (s)  thread");
  put_spaces(w, thread_columns > 6 ? thread_columns - 6 : 0);
  put_literal(w, "    duration  calls\n");
}

static bool
has_duration(const struct ct_line *line)
{
  return (line->kind == CT_LINE_LEAF || line->kind == CT_LINE_CLOSE);
}

static void
put_before(struct ct_line_writer *w)
{
  put_text(w, ct_trace_has_range(w->trace) ? "entered before what is shown" : "entered before the trace begins");
}

static void
put_annotations(struct ct_line_writer *w, const struct ct_line *line)
{
  const char *separator = "  -- ";
  if (line->end == CT_SPAN_TAIL) {
    put_text(w, separator);
    put_literal(w, "tail call");
    if (line->other != NULL) {
      put_literal(w, " to ");
      put(w, line->other->text, line->other->text_length);
    }
    separator = ", ";
  } else if (line->end != CT_SPAN_RETURNED) {
    static const char *const texts[] = {
        [CT_SPAN_UNWOUND] = "left without a return (longjmp, exception or cancellation)",
        [CT_SPAN_LONGJMP] = "left by longjmp",
        [CT_SPAN_SETCONTEXT] = "left by setcontext",
        [CT_SPAN_EXCEPTION] = "left by an exception",
        [CT_SPAN_CANCELLED] = "left by cancellation of the thread",
        [CT_SPAN_PTHREAD_EXIT] = "left by pthread_exit",
        [CT_SPAN_EXEC] = "ended by exec",
        [CT_SPAN_THREAD_EXIT] = "ended with its thread",
        [CT_SPAN_UNSEEN] = "its return was not seen",
        [CT_SPAN_SWITCHED] = "its stack was switched",
        [CT_SPAN_LOST] = "its end is among lost events",
        [CT_SPAN_EXIT] = "open when the program exited",
        [CT_SPAN_EXITED] = "unfinished: open when the program exited",
        [CT_SPAN_KILLED] = "unfinished: open when a signal ended the program",
        [CT_SPAN_OPEN] = "unfinished: still open at the end of the trace",
    };
    put_text(w, separator);
    const char *text = line->end <= CT_SPAN_OPEN ? texts[line->end] : "ended";
    bool is_cut = line->end == CT_SPAN_OPEN && ct_trace_has_range(w->trace);
    put_text(w, is_cut ? "unfinished: still open where what is shown ends" : text);
    separator = ", ";
  }
  if (line->before_trace) {
    put_text(w, separator);
    put_before(w);
    separator = ", ";
  }
  if (line->uncertain) {
    put_text(w, separator);
    put_literal(w, "uncertain: events were lost meanwhile");
  }
}

/* The registers of the first two arguments: a bit for each that is known. */
static unsigned
first_two(const struct ct_line *line)
{
  return line->detail != NULL ? line->detail->integers_known & 3u : 0;
}

/* These, in parentheses, each between quotation marks or as it is. */
static void
put_arguments(struct ct_line_writer *w, const struct ct_line *line, const char *quote)
{
  for (unsigned i = 0; i < 2; i++) {
    if ((first_two(line) >> i & 1) == 0) {
      continue;
    }
    if (i == 1 && (first_two(line) & 1) != 0) {
      put_text(w, quote[0] != '\0' ? "," : ", ");
    }
    put_text(w, quote);
    put_hex(w, line->detail->integers[i]);
    put_text(w, quote);
  }
}

static bool
knows_arguments(const struct ct_line *line)
{
  return line->detail != NULL && ct_registers_have_arguments(line->detail);
}

static bool
knows_result(const struct ct_line *line)
{
  return line->detail != NULL && ct_registers_have_result(line->detail);
}

static bool
knows_rax(const struct ct_line *line)
{
  return line->detail != NULL && (line->detail->results_known & 1) != 0;
}

static size_t
read_memory(void *arg, uint64_t address, void *out, size_t bytes)
{
  const struct ct_line_writer *w = arg;
  return ct_registers_memory(&w->registers, address, out, bytes);
}

static const char *
find_symbol(void *arg, uint64_t address, uint64_t *offset)
{
  struct ct_line_writer *w = arg;
  return ct_view_prototypes_symbol(&w->prototypes, address, offset);
}

/* What the function of the line takes and gives; NULL: not known. What is known of this call is in w->registers. */
static const struct ct_prototype *
prototype_of(struct ct_line_writer *w, const struct ct_line *line)
{
  if (line->label == NULL || line->detail == NULL) {
    return NULL;
  }
  w->registers = *line->detail;
  w->context = (struct ct_value_context){w, find_symbol, read_memory};
  w->values.length = 0;
  return ct_view_prototype(&w->prototypes, line->label->fn);
}

static void
put_values(struct ct_line_writer *w)
{
  put(w, w->values.data != NULL ? w->values.data : "", w->values.length);
}

/* f(0x1, 0x2), or f(a=1, b=2) where it is known what f takes; f(int, long) (0x1, 0x2) where that is its name alone. */
static void
put_call(struct ct_line_writer *w, const struct ct_line *line)
{
  const struct ct_label *label = line->label;
  size_t length = label->text_length;
  const struct ct_prototype *prototype = knows_arguments(line) ? prototype_of(w, line) : NULL;
  if (prototype != NULL) {
    put(w, label->text, label->name_length);
    put_literal(w, "(");
    ct_values_put_arguments(&w->values, prototype, &w->registers, &w->context);
    put_values(w);
    put_literal(w, ")");
    put(w, label->text + label->suffix_start, length - label->suffix_start);
    return;
  }
  if (!knows_arguments(line)) {
    put(w, label->text, length);
    return;
  }
  bool plain = length >= 2 && memcmp(label->text + length - 2, "()", 2) == 0;
  put(w, label->text, plain ? length - 2 : length);
  put_text(w, plain ? "(" : " (");
  put_arguments(w, line, "");
  put_literal(w, ")");
}

static void
put_result(struct ct_line_writer *w, const struct ct_line *line)
{
  if (!knows_result(line)) {
    return;
  }
  const struct ct_prototype *prototype = prototype_of(w, line);
  if (prototype != NULL) {
    ct_values_put_result(&w->values, prototype, &w->registers, &w->context);
    put_values(w);
    return;
  }
  if (knows_rax(line)) {
    put_literal(w, " = ");
    put_hex(w, line->detail->results[0]);
  }
}

/* A call: where it begins, where it ends, or both in one line. */
static void
put_call_line(struct ct_line_writer *w, const struct ct_line *line)
{
  if (line->kind == CT_LINE_CLOSE) {
    put_literal(w, "} ");
    put(w, line->label->text, line->label->text_length);
    put_result(w, line);
    put_annotations(w, line);
    return;
  }
  put_call(w, line);
  if (line->kind == CT_LINE_LEAF) {
    put_result(w, line);
    put_literal(w, ";");
    put_annotations(w, line);
    return;
  }
  put_literal(w, " {");
  if (line->before_trace) {
    put_literal(w, "  -- ");
    put_before(w);
  }
}

static void
put_away(struct ct_line_writer *w, const struct ct_line *line)
{
  static const char *const texts[] = {
      [0] = " away",
      [CT_AWAY_PREEMPTED] = " off: preempted",
      [CT_AWAY_BLOCKED] = " off: blocked",
      [CT_AWAY_ROOM] = " contrail's own: waiting for room for events",
      [CT_AWAY_HELD] = " contrail's own: held, or waiting for hooks to be put in",
      [CT_AWAY_SOME] = " at most off the processor since the line like this before",
  };
  char duration[CT_DURATION_CHARS];
  put_literal(w, "-- ");
  put_text(w, ct_format_duration(duration, ct_trace_ticks_ns(w->trace, line->ticks)));
  put_text(w, line->end <= CT_AWAY_SOME ? texts[line->end] : " away");
  put_literal(w, " --");
}

static void
put_capture(struct ct_line_writer *w, const struct ct_line *line)
{
  put_text(w, line->fd == 1 ? "stdout | " : "stderr | ");
  for (size_t i = 0; i < line->value; i++) {
    char c = (unsigned char)line->text[i] < 0x20 || line->text[i] == 0x7f ? '?' : line->text[i];
    put(w, &c, 1);
  }
}

/* before, a number, after. */
static void
put_counted(struct ct_line_writer *w, const char *before, uint64_t number, const char *after)
{
  put_text(w, before);
  put_decimal(w, number);
  put_text(w, after);
}

static void
put_calls(struct ct_line_writer *w, const struct ct_line *line)
{
  switch (line->kind) {
  case CT_LINE_OPEN:
  case CT_LINE_LEAF:
  case CT_LINE_CLOSE:
    put_call_line(w, line);
    break;
  case CT_LINE_VALUE:
    put_literal(w, "-- ");
    put_text(w, ct_value_name(line->which));
    put_literal(w, " of ");
    put(w, line->label->text, line->label->text_length);
    put_literal(w, ": ");
    put_hex(w, line->value);
    put_literal(w, " --");
    break;
  case CT_LINE_POINT:
    put(w, line->label->text, line->label->text_length);
    put_literal(w, "  -- enter only");
    if (line->value > 1) {
      put_counted(w, ", sampled: 1 of ", line->value, "");
    }
    break;
  case CT_LINE_ORPHAN:
    put_literal(w, "} ");
    put(w, line->label->text, line->label->text_length);
    put_literal(w, "  -- return without its call");
    break;
  case CT_LINE_COUNTED:
    put_counted(w, "-- ", line->value, " calls of ");
    put(w, line->label->text, line->label->text_length);
    put_literal(w, " were counted only --");
    break;
  case CT_LINE_LOST:
    put_counted(w, "-- events lost: ", line->value, " --");
    break;
  case CT_LINE_SWITCH:
    if (line->value == 0) {
      put_literal(w, "-- back on the thread's own stack --");
    } else {
      put_counted(w, "-- on another stack, number ", line->value, " --");
    }
    break;
  case CT_LINE_EXEC:
    put_literal(w, "-- exec: another program from here on --");
    break;
  case CT_LINE_INTERVAL:
    put_counted(w, "-- sampling: of light hooks' calls 1 of ", line->value, " is recorded from here on --");
    break;
  case CT_LINE_AWAY:
    put_away(w, line);
    break;
  case CT_LINE_CAPTURE:
    put_capture(w, line);
    break;
  case CT_LINE_CRASH:
    put_literal(w, "-- ");
    put_text(w, line->text);
    put_literal(w, " --");
    break;
  case CT_LINE_TAIL:
    break;
  }
}

/* A JSON string: bytes that are no ASCII text are given as the character with that number. */
static void
put_json_text(struct ct_line_writer *w, const char *text, size_t bytes)
{
  static const char digits[] = "0123456789abcdef";
  put_literal(w, "\"");
  for (size_t i = 0; i < bytes; i++) {
    unsigned char c = (unsigned char)text[i];
    char escaped[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
      put(w, &text[i], 1);
    } else {
      put(w, escaped, sizeof(escaped));
    }
  }
  put_literal(w, "\"");
}

static void
put_text_line(struct ct_line_writer *w, const char *thread, const struct ct_line *line)
{
  uint64_t ns = since_start_ns(w, line->tsc);
  put_number(w, ns / 1000000000, 4, ' ');
  put_literal(w, ".");
  put_number(w, ns % 1000000000, 9, '0');
  put_literal(w, "  ");
  put_text(w, thread);
  put_literal(w, "  ");
  if (has_duration(line)) {
    put_duration(w, ct_trace_ticks_ns(w->trace, line->ticks));
  } else {
    put_spaces(w, 10);
  }
  put_spaces(w, 2 + 2 * (size_t)(line->level < MAX_INDENT ? line->level : MAX_INDENT));
  put_calls(w, line);
  put_literal(w, "\n");
}

static const char *
json_kind(const struct ct_line *line)
{
  switch (line->kind) {
  case CT_LINE_OPEN:
  case CT_LINE_LEAF:
    return "enter";
  case CT_LINE_CLOSE:
    return line->end == CT_SPAN_RETURNED ? "return" : "left";
  case CT_LINE_TAIL:
    return "tail";
  case CT_LINE_POINT:
    return "point";
  case CT_LINE_ORPHAN:
    return "orphan";
  case CT_LINE_COUNTED:
    return "counted";
  case CT_LINE_LOST:
    return "lost";
  case CT_LINE_SWITCH:
    return "switch";
  case CT_LINE_EXEC:
    return "exec";
  case CT_LINE_INTERVAL:
    return "interval";
  case CT_LINE_CAPTURE:
    return "output";
  case CT_LINE_CRASH:
    return "crash";
  case CT_LINE_AWAY:
    return "away";
  case CT_LINE_VALUE:
    return "value";
  }
  return "";
}

/* The members that only lines of this kind have. */
static void
put_json_kind(struct ct_line_writer *w, const struct ct_line *line)
{
  static const char *const reasons[] = {"", "preempted", "blocked", "room", "held", "at most"};
  if (line->kind == CT_LINE_TAIL && line->other != NULL) {
    put_literal(w, ",\"ended\":{");
    put(w, line->other->json, line->other->json_length);
    put_literal(w, "}");
  } else if (line->kind == CT_LINE_CLOSE && line->end != CT_SPAN_RETURNED) {
    put_literal(w, ",\"reason\":\"");
    put_text(w, ct_span_end_text(line->end));
    put_literal(w, "\"");
    if (ct_span_is_unfinished(line->end)) {
      put_literal(w, ",\"unfinished\":true");
    }
  } else if (line->kind == CT_LINE_LOST) {
    put_counted(w, ",\"events\":", line->value, "");
  } else if (line->kind == CT_LINE_COUNTED) {
    put_counted(w, ",\"calls\":", line->value, "");
  } else if (line->kind == CT_LINE_AWAY) {
    put_literal(w, ",\"reason\":\"");
    put_text(w, line->end <= CT_AWAY_SOME ? reasons[line->end] : "");
    put_literal(w, "\"");
  } else if (line->kind == CT_LINE_INTERVAL || (line->kind == CT_LINE_POINT && line->value > 1)) {
    put_counted(w, line->kind == CT_LINE_POINT ? ",\"sampled\":true,\"interval\":" : ",\"interval\":", line->value, "");
  }
}

/* So many numbers, each between quotation marks. */
static void
put_json_numbers(struct ct_line_writer *w, const char *key, const uint64_t *numbers, size_t count)
{
  put_text(w, key);
  for (size_t i = 0; i < count; i++) {
    put_text(w, i != 0 ? ",\"" : "\"");
    put_hex(w, numbers[i]);
    put_literal(w, "\"");
  }
}

/* All that was recorded of a call or a return. */
static void
put_json_detail(struct ct_line_writer *w, const struct ct_line *line)
{
  const struct ct_detail *raw = line->raw;
  if (raw == NULL) {
    return;
  }
  if (raw->is_return) {
    const uint64_t results[] = {raw->rax, raw->rdx, raw->xmm0, raw->xmm1};
    put_json_numbers(w, ",\"results\":[", results, 4);
    put_literal(w, "]");
    return;
  }
  put_json_numbers(w, ",\"detail\":{\"registers\":[", raw->registers, 8);
  put_json_numbers(w, "],\"return_address\":", &raw->return_address, 1);
  put_json_numbers(w, ",\"sp\":", &raw->sp, 1);
  put_json_numbers(w, ",\"bp\":", &raw->bp, 1);
  if (raw->has_vectors) {
    put_json_numbers(w, ",\"vectors\":[", raw->vectors, 8);
    put_literal(w, "]");
  }
  put_literal(w, ",\"stack\":\"");
  for (uint32_t i = 0; i < raw->stack_bytes; i++) {
    static const char digits[] = "0123456789abcdef";
    const char byte[3] = {digits[raw->stack[i] >> 4], digits[raw->stack[i] & 15], '\0'};
    put_text(w, byte);
  }
  put_literal(w, "\"}");
}

/* Arguments and result once more by their types, where these are known. */
static void
put_json_typed(struct ct_line_writer *w, const struct ct_line *line)
{
  const struct ct_prototype *prototype = prototype_of(w, line);
  if (prototype == NULL) {
    return;
  }
  if (knows_arguments(line)) {
    put_literal(w, ",\"arguments\":");
    ct_values_put_json_arguments(&w->values, prototype, &w->registers, &w->context);
    put_values(w);
    w->values.length = 0;
  }
  if (knows_result(line)) {
    put_literal(w, ",\"returned\":");
    ct_values_put_json_result(&w->values, prototype, &w->registers, &w->context);
    put_values(w);
  }
}

/* What the program wrote; or arguments and results, as far as they were recorded. */
static void
put_json_values(struct ct_line_writer *w, const struct ct_line *line)
{
  if (line->kind == CT_LINE_CAPTURE) {
    put_counted(w, ",\"fd\":", line->fd, ",\"text\":");
    put_json_text(w, line->text, line->value);
    return;
  }
  if (line->kind == CT_LINE_CRASH) {
    put_text(w, line->text);
    return;
  }
  if (line->kind == CT_LINE_VALUE) {
    put_literal(w, ",\"which\":\"");
    put_text(w, ct_value_name(line->which));
    put_literal(w, "\",\"value\":\"");
    put_hex(w, line->value);
    put_literal(w, "\"");
    return;
  }
  if (first_two(line) != 0) {
    put_literal(w, ",\"args\":[");
    put_arguments(w, line, "\"");
    put_literal(w, "]");
  }
  if (knows_rax(line)) {
    put_literal(w, ",\"result\":\"");
    put_hex(w, line->detail->results[0]);
    put_literal(w, "\"");
  }
  put_json_typed(w, line);
  put_json_detail(w, line);
}

static __attribute__((noinline)) void
set_id_text(struct ct_id_text *text, uint64_t id)
{
  bool is_quoted = id >> 53 != 0;
  unsigned digits = ct_lines_digit_count(id);
  text->id = id;
  if (id == 0) {
    memcpy(text->text, "null", 4);
    text->length = 4;
    return;
  }
  text->text[0] = text->text[digits + 1] = '"';
  ct_lines_digits(id, text->text + is_quoted + digits);
  text->length = digits + (is_quoted ? 2 : 0);
}

/* Numbers that a double does not hold are text. A line has mostly the ids of the one before. */
static inline void
put_json_id(struct ct_line_writer *w, struct ct_id_text *text, uint64_t id)
{
  if (CT_UNLIKELY(id != text->id || text->length == 0)) {
    set_id_text(text, id);
  }
  put(w, text->text, text->length);
}

static void
put_json_line(struct ct_line_writer *w, const char *tid, const struct ct_line *line)
{
  put_literal(w, "{\"ts_ns\":");
  put_decimal(w, since_start_ns(w, line->tsc));
  put_literal(w, ",\"tid\":");
  put_text(w, tid);
  put_literal(w, ",\"id\":");
  put_json_id(w, &w->id, line->id);
  put_literal(w, ",\"parent\":");
  put_json_id(w, &w->parent, line->parent);
  put_literal(w, ",\"depth\":");
  put_decimal(w, line->depth);
  put_literal(w, ",\"stack\":");
  put_decimal(w, line->context);
  put_literal(w, ",\"kind\":\"");
  put_text(w, json_kind(line));
  put_literal(w, "\",");
  if (line->label != NULL) {
    put(w, line->label->json, line->label->json_length);
  } else {
    put_literal(w, "\"name\":null,\"module\":null");
  }
  put_literal(w, ",\"duration_ns\":");
  if (line->kind == CT_LINE_CLOSE || line->kind == CT_LINE_AWAY ||
      (line->kind == CT_LINE_TAIL && line->other != NULL)) {
    put_decimal(w, ct_trace_ticks_ns(w->trace, line->ticks));
  } else {
    put_literal(w, "null");
  }
  put_json_kind(w, line);
  put_json_values(w, line);
  if (line->before_trace) {
    put_literal(w, ",\"entered_before\":true");
  }
  if (line->uncertain) {
    put_literal(w, ",\"uncertain\":true");
  }
  put_literal(w, "}\n");
}

/* What is wrong inside the file; that it is cut has been said. */
static void
add_prototypes_damage(struct ct_line_writer *w, json_t *list)
{
  static const char start[] = "DAMAGED: " CT_TRACE_PROTOTYPES;
  const char *damage = ct_trace_prototypes_damage(w->trace);
  char text[128];
  json_t *item;
  size_t i;
  json_array_foreach(list, i, item)
  {
    if (strncmp(json_string_value(item), start, sizeof(start) - 1) == 0) {
      return;
    }
  }
  if (damage != NULL) {
    snprintf(text, sizeof(text), "%s %s: values are shown without their types", start, damage);
    json_array_append_new(list, json_string(text));
  }
}

void
ct_lines_warnings(struct ct_line_writer *w)
{
  json_t *list = ct_view_warnings(w->trace), *item;
  size_t i;
  add_prototypes_damage(w, list);
  json_array_foreach(list, i, item)
  {
    const char *text = json_string_value(item);
    if (w->json) {
      put_literal(w, "{\"ts_ns\":0,\"tid\":0,\"depth\":0,\"kind\":\"warning\",\"name\":null,\"module\":null,"
                     "\"duration_ns\":null,\"text\":");
      put_json_text(w, text, strlen(text));
      put_literal(w, "}\n");
    } else {
      put_text(w, text);
      put_literal(w, "\n");
    }
    ct_lines_flush(w);
  }
  json_decref(list);
}

void
ct_lines_put(struct ct_line_writer *w, const char *thread, const struct ct_line *line)
{
  if (w->length + FIXED_BYTES > w->capacity) {
    ct_lines_flush(w);
  }
  if (w->json) {
    put_json_line(w, thread, line);
  } else {
    put_text_line(w, thread, line);
  }
}

char *
ct_lines_call_text(struct ct_line_writer *w, const struct ct_line *line)
{
  char *text = NULL;
  size_t length;
  w->out = open_memstream(&text, &length);
  if (w->out == NULL) {
    return NULL;
  }
  (w->json ? put_json_values : line->kind == CT_LINE_CLOSE ? put_result : put_call)(w, line);
  ct_lines_flush(w);
  fclose(w->out);
  w->out = NULL;
  return text;
}
