/* SPDX-License-Identifier: MIT */
/* contrail tui: a page of the replay, by the library's own replay as JSON, of a piece of the trace that begins there.
 */
#include "cli/tui.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void
tui_line_free(struct tui_line *line)
{
  free(line->name);
  free(line->module);
  free(line->note);
  *line = (struct tui_line){0};
}

void
tui_page_free(struct tui_page *page)
{
  for (size_t i = 0; i < page->count; i++) {
    tui_line_free(&page->lines[i]);
  }
  free(page->lines);
  free(page->before);
  *page = (struct tui_page){0};
}

/* ---- a line ---- */

static char *
copy(const char *text)
{
  return text != NULL ? strdup(text) : NULL;
}

static int64_t
member(const json_t *json, const char *key, int64_t without)
{
  const json_t *value = json_object_get(json, key);
  return json_is_integer(value)  ? json_integer_value(value)
         : json_is_string(value) ? strtoll(json_string_value(value), NULL, 10)
                                 : without;
}

static const char *
text_of(const json_t *json, const char *key)
{
  const char *text = json_string_value(json_object_get(json, key));
  return text != NULL ? text : "";
}

/* "3", "0x5632 \"text\"": one value, by its type. */
static void
put_value(FILE *out, const json_t *value)
{
  const json_t *plain = json_object_get(value, "value");
  if (text_of(value, "text")[0] != '\0') {
    fputs(text_of(value, "text"), out);
  } else if (plain != NULL) {
    json_dumpf(plain, out, JSON_ENCODE_ANY | JSON_COMPACT);
  } else {
    fputs(text_of(value, "raw")[0] != '\0' ? text_of(value, "raw") : "?", out);
  }
}

/* What a call was given, as far as it was recorded. */
static void
put_arguments(FILE *out, const json_t *json)
{
  const json_t *list = json_object_get(json, "arguments"), *plain = json_object_get(json, "args"), *value;
  size_t i;
  if (list == NULL && plain == NULL) {
    return;
  }
  putc('(', out);
  json_array_foreach(list, i, value)
  {
    fputs(i != 0 ? ", " : "", out);
    if (text_of(value, "name")[0] != '\0') {
      fprintf(out, "%s=", text_of(value, "name"));
    }
    put_value(out, value);
  }
  for (i = 0; list == NULL && i < json_array_size(plain); i++) {
    fprintf(out, "%s%s", i != 0 ? ", " : "", json_string_value(json_array_get(plain, i)));
  }
  putc(')', out);
}

static void
put_result(FILE *out, const json_t *json)
{
  if (json_object_get(json, "returned") != NULL) {
    fputs(" = ", out);
    put_value(out, json_object_get(json, "returned"));
  } else if (json_object_get(json, "result") != NULL) {
    fprintf(out, " = %s", text_of(json, "result"));
  }
}

/* Of a line that is of no call. */
static void
put_other(FILE *out, const char *kind, const json_t *json)
{
  if (strcmp(kind, "output") == 0) {
    fprintf(out, "%s | %s", member(json, "fd", 1) == 1 ? "stdout" : "stderr", text_of(json, "text"));
  } else if (strcmp(kind, "lost") == 0) {
    fprintf(out, "-- %lld events lost --", (long long)member(json, "events", 0));
  } else if (strcmp(kind, "away") == 0) {
    const char *reason = text_of(json, "reason");
    bool is_own = strcmp(reason, "room") == 0 || strcmp(reason, "held") == 0;
    fprintf(out, "-- %s: %s --", is_own ? "contrail's own" : "off the processor", reason);
  } else if (strcmp(kind, "switch") == 0) {
    fprintf(out, "-- on stack %lld from here --", (long long)member(json, "stack", 0));
  } else if (strcmp(kind, "crash") == 0) {
    fprintf(out, "-- crash: %s %s --", text_of(json, "signal"), text_of(json, "text"));
  } else if (strcmp(kind, "counted") == 0) {
    fprintf(out, "%lld calls were counted only", (long long)member(json, "calls", 0));
  } else if (strcmp(kind, "interval") == 0) {
    fprintf(out, "-- one of %lld calls is recorded from here on --", (long long)member(json, "interval", 1));
  } else if (strcmp(kind, "value") == 0) {
    fprintf(out, "%s %s", text_of(json, "which"), text_of(json, "value"));
  } else {
    fprintf(out, "-- %s --", kind);
  }
}

static char *
note_of(const char *kind, enum tui_kind what, const json_t *json, size_t *arguments)
{
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) {
    return NULL;
  }
  if (what == TUI_OTHER && strcmp(kind, "orphan") != 0) {
    put_other(out, kind, json);
  } else {
    put_arguments(out, json);
    *arguments = ftell(out) > 0 ? (size_t)ftell(out) : 0;
    put_result(out, json);
    if (what == TUI_TAIL) {
      fprintf(out, " -- in place of %s", text_of(json_object_get(json, "ended"), "name"));
    } else if (what == TUI_END && text_of(json, "reason")[0] != '\0') {
      fprintf(out, " -- %s", text_of(json, "reason"));
    } else if (what == TUI_POINT && member(json, "interval", 1) > 1) {
      fprintf(out, " -- one of %lld calls", (long long)member(json, "interval", 1));
    } else if (what == TUI_OTHER) {
      fputs(" -- returns, and its call is not in the trace", out);
    }
    fputs(json_is_true(json_object_get(json, "uncertain")) ? " -- uncertain" : "", out);
  }
  if (fclose(out) != 0 || size == 0) {
    free(text);
    return NULL;
  }
  return text;
}

static struct tui_line
line_of(const json_t *json)
{
  size_t arguments = 0;
  const char *kind = text_of(json, "kind");
  enum tui_kind what = strcmp(kind, "enter") == 0                                 ? TUI_ENTER
                       : strcmp(kind, "return") == 0 || strcmp(kind, "left") == 0 ? TUI_END
                       : strcmp(kind, "tail") == 0                                ? TUI_TAIL
                       : strcmp(kind, "point") == 0                               ? TUI_POINT
                                                                                  : TUI_OTHER;
  char *note = note_of(kind, what, json, &arguments);
  return (struct tui_line){
      .ns = member(json, "ts_ns", 0),
      .duration = member(json, "duration_ns", TUI_NOT_KNOWN),
      .id = member(json, "id", 0),
      .tid = (uint32_t)member(json, "tid", 0),
      .depth = (uint32_t)member(json, "depth", 0),
      .stack = (uint32_t)member(json, "stack", 0),
      .kind = what,
      .name = copy(json_string_value(json_object_get(json, "name"))),
      .module = copy(json_string_value(json_object_get(json, "module"))),
      .note = note,
      .arguments = arguments,
      .own_note = note != NULL ? strlen(note) : 0,
  };
}

/* ---- the page ---- */

static int
take_line(struct tui_replay *replay, struct tui_page *page, size_t *capacity, const char *text, size_t length)
{
  json_t *json = json_loadb(text, length, 0, NULL);
  if (json == NULL) {
    return CT_ENOMEM;
  }
  if (strcmp(text_of(json, "kind"), "warning") == 0) {
    if (replay->warnings != NULL) {
      json_array_append(replay->warnings, json_object_get(json, "text"));
    }
    json_decref(json);
    return CT_OK;
  }
  if (page->count == *capacity) {
    *capacity = *capacity * 2 + 256;
    struct tui_line *lines = reallocarray(page->lines, *capacity, sizeof(*lines));
    page->lines = lines != NULL ? lines : page->lines;
    bool *before = reallocarray(page->before, *capacity, sizeof(*before));
    page->before = before != NULL ? before : page->before;
    if (lines == NULL || before == NULL) {
      *capacity = page->count;
      json_decref(json);
      return CT_ENOMEM;
    }
  }
  page->before[page->count] =
      strcmp(text_of(json, "kind"), "enter") == 0 && json_is_true(json_object_get(json, "entered_before"));
  page->lines[page->count++] = line_of(json);
  json_decref(json);
  return CT_OK;
}

static int
take_lines(struct tui_replay *replay, struct tui_page *page, const char *text, size_t size)
{
  size_t capacity = 0;
  int code = CT_OK;
  for (const char *at = text, *end; code == CT_OK && (end = memchr(at, '\n', size - (size_t)(at - text))) != NULL;
       at = end + 1) {
    code = take_line(replay, page, &capacity, at, (size_t)(end - at));
  }
  return code;
}

/* The replay's lines from that time on; NULL after an error. */
static char *
read_text(struct tui_replay *replay, int64_t from, int64_t after, size_t limit, size_t *size, struct ct_diag *diag)
{
  const struct ct_trace *trace = replay->trace;
  struct ct_filter filter = replay->filter;
  char *text = NULL;
  from = from > replay->from ? from : replay->from;
  filter.from_tsc = filter.to_tsc = 0; /* of the trace, which has them already */
  filter.after = (uint64_t)after;
  filter.limit = limit;
  if (replay->one_tid != 0) {
    filter.tids = &replay->one_tid;
    filter.tid_count = 1;
  }
  uint64_t from_tsc = from <= 0 ? 0 : ct_trace_tsc(trace, ct_trace_start_ns(trace) + (uint64_t)from);
  uint64_t to_tsc = replay->filter.to_tsc != 0 ? replay->filter.to_tsc : UINT64_MAX;
  struct ct_filter piece = {.struct_size = sizeof(piece), .from_tsc = from_tsc, .to_tsc = to_tsc};
  int code = ct_filter_set_range(&piece, replay->trace);
  FILE *out = code == CT_OK ? open_memstream(&text, size) : NULL;
  if (out == NULL) {
    snprintf(diag->text, sizeof(diag->text), "out of memory");
    return NULL;
  }
  struct ct_replay_options options = {
      .struct_size = sizeof(options), .filter = &filter, .json = true, .time = CT_TIME_WALL};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  code = ct_replay_write(replay->trace, &options, out, &notes, diag);
  replay->notes = code == CT_OK && notes.damaged_threads >= replay->notes.damaged_threads ? notes : replay->notes;
  if (fclose(out) != 0 && code == CT_OK) {
    code = CT_ENOMEM;
  }
  if (code != CT_OK) {
    if (diag->text[0] == '\0') {
      snprintf(diag->text, sizeof(diag->text), "%s", ct_err_text(code));
    }
    free(text);
    return NULL;
  }
  return text;
}

bool
tui_page_count(struct tui_replay *replay, int64_t from, size_t limit, size_t *count, bool *is_last,
               struct ct_diag *diag)
{
  size_t size = 0, before = 0, all = 0;
  char *text = read_text(replay, from, 0, limit, &size, diag);
  for (char *at = text, *end; at != NULL && (end = strchr(at, '\n')) != NULL; at = end + 1) {
    *end = '\0';
    if (strstr(at, "\"kind\":\"warning\"") == NULL) {
      all++;
      before += strstr(at, "\"kind\":\"enter\"") != NULL && strstr(at, "\"entered_before\":true") != NULL;
    }
  }
  *count = all - before;
  *is_last = all < limit;
  free(text);
  return text != NULL;
}

int
tui_page_read(struct tui_replay *replay, int64_t from, int64_t after, size_t limit, struct tui_page *page,
              struct ct_diag *diag)
{
  size_t size = 0;
  *page = (struct tui_page){0};
  char *text = read_text(replay, from, after, limit, &size, diag);
  if (text == NULL) {
    return CT_EIO;
  }
  json_array_clear(replay->warnings);
  int code = take_lines(replay, page, text, size);
  free(text);
  page->is_last = page->count < limit;
  if (code != CT_OK) {
    tui_page_free(page);
    snprintf(diag->text, sizeof(diag->text), "%s", ct_err_text(code));
  }
  return code;
}
