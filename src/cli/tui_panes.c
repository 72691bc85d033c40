/* SPDX-License-Identifier: MIT */
/* contrail tui: how the panes look. */
#include "cli/tui_panes.h"

#include "cli/screen.h"

#include <contrail/text.h>

#include <inttypes.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 2, INDENT_MAX = 40, NAME_LEAST = 28, TIME_COLUMNS = 10, CALLS_COLUMNS = 12 };

static char *
time_text(char buf[CT_DURATION_CHARS], int64_t ns)
{
  if (ns == TUI_NOT_KNOWN) {
    memcpy(buf, "-", 2);
    return buf;
  }
  return ct_format_duration(buf, (uint64_t)ns);
}

/* A line of a pane, cut to its width; the one with the bar looks so. */
__attribute__((format(printf, 4, 5))) static void
put(const struct screen *screen, enum tui_pane which, int line, const char *format, ...)
{
  const struct pane *pane = &screen->panes[which];
  char text[CT_SCREEN_TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  ct_screen_text(pane->y + line, pane->x, pane->width, text);
}

__attribute__((format(printf, 3, 4))) static void
put_heading(const struct screen *screen, enum tui_pane which, const char *format, ...)
{
  const struct pane *pane = &screen->panes[which];
  char text[CT_SCREEN_TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  attr_t look = which == screen->focus ? A_REVERSE | A_BOLD : A_REVERSE | A_DIM;
  attron((int)look);
  mvhline(pane->y, pane->x, ' ', pane->width);
  ct_screen_text(pane->y, pane->x, pane->width, text);
  attroff((int)look);
}

static char *
shown_name(const struct tui *tui, char buf[CT_SCREEN_TEXT_BYTES], const char *name)
{
  return ct_screen_name(buf, name, ct_shown_short_names(&tui->selected.look));
}

/* The uppermost line, so that the one with the bar is on the pane. */
static void
keep_in(size_t *first, size_t *selected, size_t count, int lines)
{
  *selected = count == 0 ? 0 : *selected < count ? *selected : count - 1;
  if (*selected < *first) {
    *first = *selected;
  } else if (lines > 0 && *selected >= *first + (size_t)lines) {
    *first = *selected - (size_t)lines + 1;
  }
}

static void
begin_line(const struct screen *screen, enum tui_pane which, int line, bool is_selected)
{
  if (is_selected) {
    attron(which == screen->focus ? A_REVERSE : A_BOLD);
    mvhline(screen->panes[which].y + line, screen->panes[which].x, ' ', screen->panes[which].width);
  }
}

static void
end_line(void)
{
  attroff(A_REVERSE | A_BOLD);
}

/* ---- report ---- */

/* Columns of the report, the more useful ones first; what it is sorted by comes before all others. */
static const struct column {
  const char *title;
  enum tui_sort sort;
  int width;
  size_t offset;
} report_columns[] = {
    {"self", TUI_SORT_SELF, TIME_COLUMNS, offsetof(struct tui_function, self)},
    {"calls", TUI_SORT_CALLS, CALLS_COLUMNS, offsetof(struct tui_function, calls)},
    {"total", TUI_SORT_TOTAL, TIME_COLUMNS, offsetof(struct tui_function, total)},
    {"p99", TUI_SORT_P99, TIME_COLUMNS, offsetof(struct tui_function, p99)},
    {"max", TUI_SORT_MAX, TIME_COLUMNS, offsetof(struct tui_function, max)},
    {"p50", TUI_SORT_P50, TIME_COLUMNS, offsetof(struct tui_function, p50)},
};
enum { REPORT_COLUMNS = sizeof(report_columns) / sizeof(report_columns[0]) };

/* Those that there is room for, besides a name; how many. */
static int
choose_columns(const struct tui *tui, int width, const struct column *selected[REPORT_COLUMNS])
{
  int count = 0, used = NAME_LEAST;
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < REPORT_COLUMNS; i++) {
      const struct column *column = &report_columns[i];
      if ((pass == 0) == (column->sort == tui->sort) && used + column->width < width) {
        used += column->width + 1;
        selected[count++] = column;
      } else if (pass == 1 && column->sort != tui->sort) {
        return count;
      }
    }
  }
  return count;
}

/* function NULL: the titles. */
static void
report_line(const struct tui *tui, char *out, size_t size, const struct tui_function *function,
            const struct column *const columns[], int count)
{
  size_t used = 0;
  for (int i = 0; i < count; i++) {
    char buf[CT_COUNT_CHARS];
    int64_t value = 0;
    if (function != NULL) {
      memcpy(&value, (const char *)function + columns[i]->offset, sizeof(value));
    }
    const char *text = function == NULL                     ? columns[i]->title
                       : columns[i]->sort == TUI_SORT_CALLS ? ct_format_count(buf, (uint64_t)value)
                                                            : time_text(buf, value);
    used += (size_t)snprintf(out + used, size - used, "%*s ", columns[i]->width, text);
  }
  if (function != NULL) {
    char name[CT_SCREEN_TEXT_BYTES];
    snprintf(out + used, size - used, "%s [%s]", shown_name(tui, name, function->name), function->module);
  } else {
    snprintf(out + used, size - used, "function");
  }
}

static void
draw_report(struct screen *screen)
{
  struct tui *tui = screen->tui;
  const struct pane *pane = &screen->panes[TUI_REPORT];
  const struct column *columns[REPORT_COLUMNS];
  int lines = pane->height - 2, column_count = choose_columns(tui, pane->width, columns);
  char count[CT_COUNT_CHARS], text[CT_SCREEN_TEXT_BYTES];
  put_heading(screen, TUI_REPORT, " report: %s functions by %s%s%s", ct_format_count(count, tui->row_count),
              tui_sort_name(tui->sort), tui->pattern[0] != '\0' ? ", only " : "", tui->pattern);
  report_line(tui, text, sizeof(text), NULL, columns, column_count);
  attron(A_UNDERLINE);
  put(screen, TUI_REPORT, 1, "%s", text);
  attroff(A_UNDERLINE);
  keep_in(&tui->row_first, &tui->row_selected, tui->row_count, lines);
  for (int i = 0; i < lines && tui->row_first + (size_t)i < tui->row_count; i++) {
    size_t row = tui->row_first + (size_t)i;
    begin_line(screen, TUI_REPORT, i + 2, row == tui->row_selected);
    report_line(tui, text, sizeof(text), tui->rows[row], columns, column_count);
    put(screen, TUI_REPORT, i + 2, "%s", text);
    end_line();
  }
  if (tui->row_count == 0) {
    put(screen, TUI_REPORT, 2, "%s", tui->pattern[0] != '\0' ? "no function that was called matches" : "no calls");
  }
}

/* ---- graph ---- */

static void
graph_line(const struct tui *tui, const struct tui_node *node, int columns, char *text, size_t size)
{
  const struct tui_function *function = tui_data_function(&tui->data, node->function);
  char total[CT_DURATION_CHARS], calls[CT_COUNT_CHARS], others[CT_COUNT_CHARS], name[CT_SCREEN_TEXT_BYTES];
  int indent = (int)(node->level < INDENT_MAX ? node->level : INDENT_MAX) * INDENT;
  if (node->others != 0) {
    snprintf(text, size, "%*s... and %s more", indent + columns * (TIME_COLUMNS + 1), "",
             ct_format_count(others, node->others));
    return;
  }
  size_t used = 0;
  if (columns > 0) {
    used += (size_t)snprintf(text, size, "%*s ", TIME_COLUMNS, time_text(total, node->total));
  }
  if (columns > 1) {
    used +=
        (size_t)snprintf(text + used, size - used, "%*s ", TIME_COLUMNS, ct_format_count(calls, (uint64_t)node->calls));
  }
  if (columns > 2) {
    double share =
        tui->graph.whole > 0 && node->total >= 0 ? 100.0 * (double)node->total / (double)tui->graph.whole : 0;
    used += (size_t)snprintf(text + used, size - used, "%5.1f%% ", share);
  }
  char recursive[CT_COUNT_CHARS + 16] = "", count[CT_COUNT_CHARS];
  if (node->recursive != 0) {
    snprintf(recursive, sizeof(recursive), "  (%s recursive)", ct_format_count(count, (uint64_t)node->recursive));
  }
  snprintf(text + used, size - used, "%*s%c %s%s", indent, "",
           node->is_recursion ? '^'
           : node->is_open    ? '-'
           : node->has_more   ? '+'
                              : ' ',
           node->label != NULL                 ? node->label
           : function != NULL                  ? shown_name(tui, name, function->name)
           : node->function == TUI_NO_FUNCTION ? "(no caller on the stack)"
                                               : "?",
           node->is_recursion ? "  (is above)" : recursive);
}

/* What its numbers are of. */
static void
graph_kind(const struct tui *tui, char *text, size_t size)
{
  const struct tui_graph *graph = &tui->graph;
  char folded[CT_COUNT_CHARS];
  int64_t root;
  unsigned percent;
  if (graph->of_paths && tui->paths.folded != 0) {
    snprintf(text, size, "paths; %s thin ones are not kept", ct_format_count(folded, tui->paths.folded));
  } else if (graph->of_paths) {
    snprintf(text, size, "paths");
  } else if (!graph->up && !tui->wants_edges && tui_paths_are_read(&tui->paths, &root, &percent)) {
    snprintf(text, size, "sums of each caller; reading the paths, %u %%", percent);
  } else {
    snprintf(text, size, "sums of each caller");
  }
}

static void
draw_graph(struct screen *screen)
{
  struct tui *tui = screen->tui;
  struct tui_graph *graph = &tui->graph;
  const struct pane *pane = &screen->panes[TUI_GRAPH];
  int lines = pane->height - 1, columns = pane->width >= 60 ? 3 : pane->width >= 45 ? 2 : pane->width >= 30 ? 1 : 0;
  const struct tui_function *root = tui_data_function(&tui->data, graph->root);
  char text[CT_SCREEN_TEXT_BYTES], kind[120];
  graph_kind(tui, kind, sizeof(kind));
  if (root == NULL) {
    put_heading(screen, TUI_GRAPH, " graph: from the outermost calls (%s)", kind);
  } else {
    put_heading(screen, TUI_GRAPH, " graph: %s %s (%s)", graph->up ? "who calls" : "called by",
                shown_name(tui, text, root->name), kind);
  }
  keep_in(&graph->first, &graph->selected, graph->count, lines);
  for (int i = 0; i < lines && graph->first + (size_t)i < graph->count; i++) {
    size_t at = graph->first + (size_t)i;
    graph_line(tui, &graph->nodes[at], columns, text, sizeof(text));
    begin_line(screen, TUI_GRAPH, i + 1, at == graph->selected);
    put(screen, TUI_GRAPH, i + 1, "%s", text);
    end_line();
  }
}

/* ---- replay ---- */

/* The least depth of the lines that are seen: a deep stack needs no empty columns. */
static uint32_t
least_depth(const struct tui_replay *replay, int lines)
{
  uint32_t least = UINT32_MAX;
  for (size_t i = replay->first; i < replay->window.count && i < replay->first + (size_t)lines; i++) {
    const struct tui_line *line = &replay->window.lines[i];
    least = line->name != NULL && line->depth < least ? line->depth : least;
  }
  return least != UINT32_MAX ? least : 0;
}

static void
replay_line(const struct tui *tui, const struct tui_line *line, uint32_t least, int width, char *text, size_t size)
{
  char duration[CT_DURATION_CHARS] = "", name[CT_SCREEN_TEXT_BYTES] = "";
  const struct tui_replay *replay = &tui->replay;
  uint32_t level = line->depth > least ? line->depth - least : 0;
  int indent = (int)(level < INDENT_MAX ? level : INDENT_MAX) * INDENT;
  size_t used = 0;
  bool is_begin = line->kind == TUI_ENTER || line->kind == TUI_TAIL;
  if (width >= 40) {
    used += (size_t)snprintf(text, size, "%" PRId64 ".%09" PRId64 " ", line->ns / 1000000000, line->ns % 1000000000);
  }
  if (width >= 70 && replay->one_tid == 0 && ct_trace_thread_count(replay->trace) > 1) {
    used += (size_t)snprintf(text + used, size - used, "%7" PRIu32 " ", line->tid);
  }
  bool is_shown = line->duration != TUI_NOT_KNOWN && !(is_begin && line->has_inside && !line->is_folded);
  if (width >= 55) {
    used += (size_t)snprintf(text + used, size - used, "%*s ", TIME_COLUMNS,
                             is_shown ? time_text(duration, line->duration) : "");
  }
  const char *note = line->note != NULL ? line->note : "";
  if (line->name != NULL) {
    shown_name(tui, name, line->name);
  }
  if (line->name == NULL) {
    snprintf(text + used, size - used, "%*s%s", indent + INDENT, "", note);
  } else if (line->kind == TUI_END) {
    snprintf(text + used, size - used, "%*s  } %s%s", indent, "", name, note);
  } else {
    bool has_inside = is_begin && line->has_inside;
    snprintf(text + used, size - used, "%*s%c %s%.*s%s%s", indent, "",
             has_inside && line->is_folded ? '+'
             : has_inside                  ? '-'
                                           : ' ',
             name, (int)line->arguments, note,
             !is_begin                       ? ""
             : has_inside && line->is_folded ? " {...}"
             : has_inside                    ? " {"
                                             : "",
             note + line->arguments);
  }
}

static void
draw_replay(struct screen *screen)
{
  struct tui_replay *replay = &screen->tui->replay;
  const struct pane *pane = &screen->panes[TUI_REPLAY];
  int lines = pane->height - 1;
  char text[CT_SCREEN_TEXT_BYTES], thread[40] = "all threads", levels[40] = "";
  if (replay->one_tid != 0) {
    snprintf(thread, sizeof(thread), "thread %" PRIu32, replay->one_tid);
  }
  if (replay->levels != 0) {
    snprintf(levels, sizeof(levels), ", folded from depth %" PRIu32 " on", replay->levels - 1);
  }
  put_heading(screen, TUI_REPLAY, " replay: %s%s%s", thread, levels, screen->follows ? ", at the end" : "");
  keep_in(&replay->first, &replay->selected, replay->window.count, lines);
  uint32_t least = least_depth(replay, lines);
  for (int i = 0; i < lines && replay->first + (size_t)i < replay->window.count; i++) {
    size_t at = replay->first + (size_t)i;
    replay_line(screen->tui, &replay->window.lines[at], least, pane->width, text, sizeof(text));
    begin_line(screen, TUI_REPLAY, i + 1, at == replay->selected);
    put(screen, TUI_REPLAY, i + 1, "%s", text);
    end_line();
  }
  if (replay->window.count == 0) {
    put(screen, TUI_REPLAY, 1, "nothing is recorded there");
  }
}

/* ---- source ---- */

/* Tabs become blanks. */
static void
expand(char *out, size_t size, const char *text)
{
  size_t used = 0;
  for (; *text != '\0' && *text != '\r' && used + 9 < size; text++) {
    if (*text == '\t') {
      do {
        out[used++] = ' ';
      } while (used % 8 != 0);
    } else {
      out[used++] = *text;
    }
  }
  out[used] = '\0';
}

static void
draw_source_lines(struct screen *screen, uint32_t line)
{
  const struct tui_source *source = &screen->tui->source;
  const struct pane *pane = &screen->panes[TUI_SOURCE];
  char text[CT_SCREEN_TEXT_BYTES];
  int lines = pane->height - 1;
  size_t count = source->count;
  screen->source_first = screen->source_first < count ? screen->source_first : count != 0 ? count - 1 : 0;
  for (int i = 0; i < lines && screen->source_first + (size_t)i < count; i++) {
    size_t at = screen->source_first + (size_t)i;
    expand(text, sizeof(text), source->lines[at]);
    begin_line(screen, TUI_SOURCE, i + 1, at + 1 == line);
    put(screen, TUI_SOURCE, i + 1, "%5zu  %s", at + 1, text);
    end_line();
  }
}

static void
draw_source(struct screen *screen)
{
  struct tui *tui = screen->tui;
  const struct tui_function *function = tui_selected_function(screen);
  const struct pane *pane = &screen->panes[TUI_SOURCE];
  if (function == NULL) {
    put_heading(screen, TUI_SOURCE, " source");
    return;
  }
  tui_source_take(&tui->source, function->file, tui->folders, tui->folder_count);
  if (screen->source_of != function->id) {
    size_t above = (size_t)(pane->height / 3);
    screen->source_of = function->id;
    screen->source_first = function->line > above ? function->line - above : 0;
  }
  if (function->file == NULL) {
    put_heading(screen, TUI_SOURCE, " source of %s", function->name);
    put(screen, TUI_SOURCE, 1, "the trace does not say where it is written: its module has");
    put(screen, TUI_SOURCE, 2, "no debug information, or it was recorded without --source");
    put(screen, TUI_SOURCE, 4, "function  %s", function->name);
    put(screen, TUI_SOURCE, 5, "module    %s", function->module);
    return;
  }
  put_heading(screen, TUI_SOURCE, " source: %s:%" PRIu32 "  %s", function->file, function->line, function->name);
  if (tui->source.text == NULL) {
    put(screen, TUI_SOURCE, 1, "%s", tui->source.said);
    return;
  }
  draw_source_lines(screen, function->line);
}

void
tui_draw_pane(struct screen *screen, enum tui_pane which)
{
  static void (*const draw[TUI_PANES])(struct screen *) = {draw_report, draw_graph, draw_replay, draw_source};
  draw[which](screen);
}
