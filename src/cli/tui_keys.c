/* SPDX-License-Identifier: MIT */
/* contrail tui: what keys do in the panes. */
#include "cli/tui_panes.h"

#include "cli/screen.h"

#include <contrail/text.h>

#include <ctype.h>
#include <inttypes.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FOUND_MAX = 200, CALLERS_MAX = 40 };

const struct tui_function *
tui_selected_function(const struct screen *screen)
{
  const struct tui *tui = screen->tui;
  enum tui_pane pane = screen->focus == TUI_SOURCE ? screen->last_left : screen->focus;
  if (screen->focus == TUI_SOURCE && tui->shown != TUI_NO_FUNCTION) {
    return tui_data_function(&tui->data, tui->shown);
  }
  if (pane == TUI_REPORT) {
    return tui->row_selected < tui->row_count ? tui->rows[tui->row_selected] : NULL;
  }
  if (pane == TUI_GRAPH) {
    const struct tui_graph *graph = &tui->graph;
    return graph->selected < graph->count ? tui_data_function(&tui->data, graph->nodes[graph->selected].function)
                                          : NULL;
  }
  const struct tui_lines *window = &tui->replay.window;
  const struct tui_line *line = tui->replay.selected < window->count ? &window->lines[tui->replay.selected] : NULL;
  return line != NULL ? tui_data_named(&tui->data, line->name, line->module) : NULL;
}

/* ---- the bar ---- */

static void
move_to(size_t *selected, size_t count, int64_t to)
{
  *selected = to < 0 || count == 0 ? 0 : (size_t)to < count ? (size_t)to : count - 1;
}

static void
move_in_replay(struct screen *screen, int64_t by)
{
  struct tui_replay *replay = &screen->tui->replay;
  struct ct_diag diag = {""};
  size_t page = (size_t)(screen->panes[TUI_REPLAY].height + 1);
  int64_t to = (int64_t)replay->selected + by;
  screen->follows = false;
  if (to < (int64_t)page) {
    size_t before = replay->window.count;
    tui_replay_extend_back(replay, 2 * page, &diag);
    to += (int64_t)(replay->window.count > before ? replay->window.count - before : 0);
  }
  if (to + (int64_t)page > (int64_t)replay->window.count) {
    size_t selected = replay->selected;
    tui_replay_extend(replay, &screen->tui->data, 2 * page, &diag);
    to -= (int64_t)(selected - replay->selected);
  }
  move_to(&replay->selected, replay->window.count, to);
  tui_say(screen, &diag);
}

static void
move_by(struct screen *screen, int64_t by)
{
  struct tui *tui = screen->tui;
  int64_t first = (int64_t)screen->source_first + by;
  switch (screen->focus) {
  case TUI_REPORT:
    move_to(&tui->row_selected, tui->row_count, (int64_t)tui->row_selected + by);
    break;
  case TUI_GRAPH:
    move_to(&tui->graph.selected, tui->graph.count, (int64_t)tui->graph.selected + by);
    break;
  case TUI_REPLAY:
    move_in_replay(screen, by);
    break;
  default:
    screen->source_first = first > 0 ? (size_t)first : 0;
    break;
  }
}

static void
move_to_edge(struct screen *screen, bool end)
{
  struct tui *tui = screen->tui;
  struct ct_diag diag = {""};
  screen->follows = false;
  if (screen->focus != TUI_REPLAY) {
    move_by(screen, end ? INT32_MAX : -(int64_t)INT32_MAX);
  } else if (end) {
    tui_replay_go_to_end(&tui->replay, &tui->data, &diag);
  } else {
    tui_replay_go(&tui->replay, &tui->data, 0, &diag);
  }
  tui_say(screen, &diag);
}

/* The end of the replay, now and when there is more. */
static void
follow(struct screen *screen)
{
  struct ct_diag diag = {""};
  tui_replay_go_to_end(&screen->tui->replay, &screen->tui->data, &diag);
  screen->follows = screen->tui->is_growing;
  tui_say(screen, &diag);
}

/* ---- search ---- */

/* Without regard to case, when the text has no capital letters. */
static bool
has_text(const char *name, const char *text)
{
  bool has_capital = false;
  for (const char *p = text; *p != '\0'; p++) {
    has_capital |= isupper((unsigned char)*p) != 0;
  }
  return name != NULL && (has_capital ? strstr(name, text) : strcasestr(name, text)) != NULL;
}

static const char *
name_at(const struct screen *screen, size_t at)
{
  const struct tui *tui = screen->tui;
  if (screen->focus == TUI_REPORT) {
    return tui->rows[at]->name;
  }
  if (screen->focus == TUI_SOURCE) {
    return tui->source.lines[at];
  }
  const struct tui_function *function = tui_data_function(&tui->data, tui->graph.nodes[at].function);
  return function != NULL ? function->name : NULL;
}

/* Among the lines of a pane, round its end. */
static void
search_lines(struct screen *screen, size_t *selected, size_t count, bool forward)
{
  for (size_t i = 1; i <= count; i++) {
    size_t at = (*selected + (forward ? i : count - i)) % count;
    if (has_text(name_at(screen, at), screen->searched)) {
      snprintf(screen->said, sizeof(screen->said), "%s",
               forward && at <= *selected    ? "from the start again"
               : !forward && at >= *selected ? "from the end again"
                                             : "");
      *selected = at;
      return;
    }
  }
  snprintf(screen->said, sizeof(screen->said), "nothing here has '%s' in its name", screen->searched);
}

/* In time, wherever in the trace it is. */
static void
find_call(struct screen *screen, const int64_t *functions, size_t count, bool forward)
{
  struct tui *tui = screen->tui;
  struct tui_replay *replay = &tui->replay;
  struct ct_diag diag = {""};
  struct tui_call call;
  const struct tui_line *line =
      replay->selected < replay->window.count ? &replay->window.lines[replay->selected] : NULL;
  int64_t ns = line != NULL ? line->ns : replay->from;
  int64_t until = forward ? replay->to + 1 : replay->from - 1;
  if (tui_data_find(&tui->data, functions, count, ns, until, forward, &call, &diag)) {
    tui_replay_show(replay, &tui->data, &call, &diag);
  } else if (diag.text[0] == '\0') {
    snprintf(screen->said, sizeof(screen->said), "no %s call of %s", forward ? "later" : "earlier",
             count == 1 ? "this function" : "such a function");
  }
  screen->follows = false;
  tui_say(screen, &diag);
}

static void
search_replay(struct screen *screen, bool forward)
{
  const struct tui_data *data = &screen->tui->data;
  int64_t found[FOUND_MAX];
  size_t count = 0;
  for (size_t i = 0; i < data->function_count && count < FOUND_MAX; i++) {
    if (has_text(data->functions[i].name, screen->searched)) {
      found[count++] = data->functions[i].id;
    }
  }
  if (count == 0) {
    snprintf(screen->said, sizeof(screen->said), "no function that was called has '%s' in its name", screen->searched);
    return;
  }
  find_call(screen, found, count, forward);
  if (count == FOUND_MAX && screen->said[0] == '\0') {
    snprintf(screen->said, sizeof(screen->said), "many functions match: the first %d of them are looked for",
             FOUND_MAX);
  }
}

void
tui_search(struct screen *screen, bool forward)
{
  struct tui *tui = screen->tui;
  if (screen->searched[0] == '\0') {
    snprintf(screen->said, sizeof(screen->said), "nothing was searched yet: /");
  } else if (screen->focus == TUI_REPLAY) {
    search_replay(screen, forward);
  } else if (screen->focus == TUI_REPORT) {
    search_lines(screen, &tui->row_selected, tui->row_count, forward);
  } else if (screen->focus == TUI_GRAPH) {
    search_lines(screen, &tui->graph.selected, tui->graph.count, forward);
  } else {
    search_lines(screen, &screen->source_first, tui->source.count, forward);
  }
}

/* ---- folding, and the function in all panes ---- */

static void
fold(struct screen *screen, bool fold)
{
  struct tui *tui = screen->tui;
  struct ct_diag diag = {""};
  if (screen->focus == TUI_GRAPH && fold) {
    tui_graph_fold(&tui->graph, tui->graph.selected);
  } else if (screen->focus == TUI_GRAPH) {
    struct tui_sums sums = tui_sums(tui);
    tui_graph_unfold(&tui->graph, &sums, tui->graph.selected);
  } else if (screen->focus == TUI_REPLAY) {
    tui_replay_fold(&tui->replay, &tui->data, tui->replay.selected, fold, &diag);
  }
  tui_say(screen, &diag);
}

static void
show_function(struct screen *screen)
{
  struct tui *tui = screen->tui;
  const struct tui_function *function = tui_selected_function(screen);
  struct ct_diag diag = {""};
  struct tui_call call;
  if (function == NULL) {
    return;
  }
  tui->shown = function->id;
  tui_show_graph(tui, function->id, tui->graph.up, &diag);
  if (tui_data_longest(&tui->data, function->id, &call, &diag)) {
    tui_replay_show(&tui->replay, &tui->data, &call, &diag);
    screen->follows = false;
  }
  tui_say(screen, &diag);
}

static void
press_enter(struct screen *screen)
{
  const struct tui_replay *replay = &screen->tui->replay;
  if (screen->focus != TUI_REPLAY) {
    show_function(screen);
  } else if (replay->selected < replay->window.count) {
    fold(screen, !replay->window.lines[replay->selected].is_folded);
  }
}

/* ---- other keys ---- */

static void
choose_thread(struct screen *screen)
{
  struct tui_replay *replay = &screen->tui->replay;
  const struct tui_line *line =
      replay->selected < replay->window.count ? &replay->window.lines[replay->selected] : NULL;
  struct ct_diag diag = {""};
  if (line != NULL || replay->one_tid != 0) {
    struct tui_call here = {line != NULL ? line->id : 0, line != NULL ? line->ns : 0, 0};
    replay->one_tid = replay->one_tid != 0 ? 0 : line->tid;
    tui_replay_go(replay, &screen->tui->data, here.start > 2000 ? here.start - 2000 : 0, &diag);
    tui_replay_show(replay, &screen->tui->data, &here, &diag);
  }
  tui_say(screen, &diag);
}

static void
set_levels(struct screen *screen, bool all)
{
  struct tui_replay *replay = &screen->tui->replay;
  const struct tui_line *line =
      replay->selected < replay->window.count ? &replay->window.lines[replay->selected] : NULL;
  struct ct_diag diag = {""};
  if (line == NULL) {
    return;
  }
  struct tui_call here = {line->id, line->ns, 0};
  replay->levels = all ? 0 : line->depth + 1;
  replay->folded.count = replay->unfolded.count = 0;
  tui_replay_go(replay, &screen->tui->data, here.start > 2000 ? here.start - 2000 : 0, &diag);
  tui_replay_show(replay, &screen->tui->data, &here, &diag);
  tui_say(screen, &diag);
}

static void
go_to_time(struct screen *screen)
{
  struct tui *tui = screen->tui;
  const struct ct_trace *trace = tui->replay.trace;
  struct ct_diag diag = {""};
  char text[64] = "";
  uint64_t tsc;
  if (ct_screen_ask("to the time (seconds, 20ms, 10:15:30): ", text, sizeof(text)) && text[0] != '\0' &&
      ct_filter_parse_time(trace, text, &tsc, &diag) == CT_OK) {
    uint64_t ns = ct_trace_ns(trace, tsc), start = ct_trace_start_ns(trace);
    screen->follows = false;
    tui_replay_go(&tui->replay, &tui->data, ns > start ? (int64_t)(ns - start) : 0, &diag);
  }
  tui_say(screen, &diag);
}

static void
set_graph(struct screen *screen, bool outermost)
{
  struct tui_graph *graph = &screen->tui->graph;
  const struct tui_function *function = tui_selected_function(screen);
  int64_t root = outermost                                                      ? TUI_NO_FUNCTION
                 : graph->root != TUI_NO_FUNCTION && screen->focus != TUI_GRAPH ? graph->root
                 : function != NULL                                             ? function->id
                                                                                : TUI_NO_FUNCTION;
  struct ct_diag diag = {""};
  tui_show_graph(screen->tui, root, !outermost && !graph->up, &diag);
  tui_say(screen, &diag);
}

/* Paths, or the sums of each caller. */
static void
switch_kind(struct screen *screen)
{
  struct tui *tui = screen->tui;
  struct ct_diag diag = {""};
  tui->wants_edges = !tui->wants_edges;
  tui_show_graph(tui, tui->graph.root, tui->graph.up, &diag);
  tui_say(screen, &diag);
}

void
tui_press_pane(struct screen *screen, int key)
{
  int64_t page = screen->panes[screen->focus].height - 2;
  const struct tui_function *function;
  switch (key) {
  case KEY_UP:
  case KEY_DOWN:
  case 'k':
  case 'j':
    move_by(screen, key == KEY_UP || key == 'k' ? -1 : 1);
    break;
  case KEY_PPAGE:
  case KEY_NPAGE:
    move_by(screen, key == KEY_PPAGE ? -page : page);
    break;
  case KEY_HOME:
  case KEY_END:
    move_to_edge(screen, key == KEY_END);
    break;
  case 'F':
    follow(screen);
    break;
  case '\n':
  case '\r':
  case KEY_ENTER:
    press_enter(screen);
    break;
  case KEY_RIGHT:
  case KEY_LEFT:
  case '+':
  case '-':
    fold(screen, key == KEY_LEFT || key == '-');
    break;
  case 'c':
  case 'C':
    function = tui_selected_function(screen);
    if (function != NULL) {
      find_call(screen, &function->id, 1, key == 'c');
    }
    break;
  case 'r':
  case 'o':
    set_graph(screen, key == 'o');
    break;
  case 'p':
    switch_kind(screen);
    break;
  case 't':
    choose_thread(screen);
    break;
  case 'd':
  case 'D':
    set_levels(screen, key == 'D');
    break;
  case ':':
    go_to_time(screen);
    break;
  default:
    break;
  }
}

/* ---- about ---- */

__attribute__((format(printf, 2, 3))) static void
add_line(json_t *lines, const char *format, ...)
{
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  if (vasprintf(&text, format, arguments) >= 0) {
    json_array_append_new(lines, ct_json_text(text));
    free(text);
  }
  va_end(arguments);
}

static json_t *
about_function(const struct tui_function *f)
{
  char a[CT_COUNT_CHARS], b[CT_DURATION_CHARS];
  json_t *lines = json_array();
  const struct {
    const char *what;
    int64_t ns;
  } times[] = {{"total", f->total}, {"self", f->self}, {"p50", f->p50}, {"p99", f->p99}, {"max", f->max}};
  add_line(lines, "function  %s", f->name);
  add_line(lines, "module    %s", f->module);
  if (f->file != NULL) {
    add_line(lines, "source    %s:%" PRIu32, f->file, f->line);
  }
  add_line(lines, "calls     %s", ct_format_count(a, (uint64_t)f->calls));
  for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
    add_line(lines, "%-8s  %s", times[i].what,
             times[i].ns != TUI_NOT_KNOWN ? ct_format_duration(b, (uint64_t)times[i].ns) : "not known");
  }
  return lines;
}

/* The call of a line, and the calls that it is in. */
static json_t *
about_call(struct screen *screen, const struct tui_line *line)
{
  struct ct_diag diag = {""};
  json_t *lines = json_array();
  int64_t id = line->id;
  if (line->note != NULL) {
    add_line(lines, "%s", line->note);
  }
  for (int i = 0; i < CALLERS_MAX && id > 0; i++) {
    json_t *rows = tui_data_ask(&screen->tui->data, &diag,
                                "SELECT function, module, start, duration_text(duration), duration_text(self), "
                                "duration_text(off), depth, reason, flags, parent_id FROM spans WHERE id = %" PRId64,
                                id);
    const json_t *row = json_array_get(rows, 0);
    if (row == NULL) {
      json_decref(rows);
      break;
    }
    const char *text[9];
    for (size_t k = 0; k < 9; k++) {
      text[k] = json_string_value(json_array_get(row, k));
      text[k] = text[k] != NULL ? text[k] : "-";
    }
    int64_t start = tui_number(row, 2);
    add_line(lines, "%s%s [%s]", i == 0 ? "" : "in  ", text[0], text[1]);
    add_line(lines, "      id %" PRId64 "  begins at %" PRId64 ".%09" PRId64 "  took %s  self %s  off the processor %s",
             id, start / 1000000000, start % 1000000000, text[3], text[4], text[5]);
    add_line(lines, "      depth %" PRId64 "  %s  %s", tui_number(row, 6), text[7],
             strcmp(text[8], "-") != 0 ? text[8] : "");
    id = tui_number(row, 9);
    json_decref(rows);
  }
  if (diag.text[0] != '\0') {
    add_line(lines, "%s", diag.text);
  }
  return lines;
}

json_t *
tui_about(struct screen *screen)
{
  const struct tui_replay *replay = &screen->tui->replay;
  const struct tui_function *function = tui_selected_function(screen);
  if (screen->focus == TUI_REPLAY && replay->selected < replay->window.count) {
    return about_call(screen, &replay->window.lines[replay->selected]);
  }
  return function != NULL ? about_function(function) : NULL;
}
