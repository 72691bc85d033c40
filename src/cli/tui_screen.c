/* SPDX-License-Identifier: MIT */
/*
 * The screen of contrail tui: four panes, or on a small terminal one of them. The pane with the bar is the one that
 * keys are for. What is slow (another page, a question to the index) is done when a key asks for it; Ctrl-C gives it
 * up.
 */
#include "cli/screen.h"
#include "cli/tui_panes.h"

#include <contrail/text.h>

#include <inttypes.h>
#include <ncurses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  COLUMNS_TWO = 100, /* side by side from so many columns on ... */
  LINES_TWO = 16,    /* ... and one below the other from so many lines on */
  TICK_MS = 200,
  REFRESH_MS = 1000, /* of a trace that grows, and ten times as long as it takes */
};

static struct ct_sql *running; /* for the signal handler */
static volatile sig_atomic_t interrupts;

static void
interrupt(int number)
{
  (void)number;
  interrupts = interrupts + 1;
  if (running != NULL) {
    ct_sql_interrupt(running);
  }
}

static uint64_t
now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* ---- drawing ---- */

static void
lay_out(struct screen *screen)
{
  int height = LINES - 2, width = COLS; /* a heading, a line at the bottom */
  bool two_columns = width >= COLUMNS_TWO, two_lines = height >= LINES_TWO;
  int left = two_columns ? width / 2 : width, upper = two_lines ? height / 2 : height;
  for (int i = 0; i < TUI_PANES; i++) {
    screen->panes[i] = (struct pane){0};
  }
  if (screen->is_zoomed || (!two_columns && !two_lines)) {
    screen->panes[screen->focus] = (struct pane){1, 0, height, width};
  } else if (!two_columns || !two_lines) { /* report or graph, and replay or source: the one that was last used */
    enum tui_pane a = screen->focus <= TUI_GRAPH ? screen->focus : screen->last_left;
    enum tui_pane b = screen->focus > TUI_GRAPH ? screen->focus : screen->last_right;
    screen->panes[a] = (struct pane){1, 0, two_lines ? upper : height, two_columns ? left - 1 : width};
    screen->panes[b] =
        two_lines ? (struct pane){1 + upper, 0, height - upper, width} : (struct pane){1, left, height, width - left};
  } else {
    screen->panes[TUI_REPORT] = (struct pane){1, 0, upper, left - 1};
    screen->panes[TUI_GRAPH] = (struct pane){1 + upper, 0, height - upper, left - 1};
    screen->panes[TUI_REPLAY] = (struct pane){1, left, upper, width - left};
    screen->panes[TUI_SOURCE] = (struct pane){1 + upper, left, height - upper, width - left};
  }
}

static void
draw_heading(const struct screen *screen)
{
  const struct tui *tui = screen->tui;
  const struct ct_trace *trace = tui->view.trace;
  char functions[CT_COUNT_CHARS], events[CT_COUNT_CHARS], lost[CT_COUNT_CHARS], rest[256] = "";
  uint64_t dropped = 0;
  for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
    dropped += ct_trace_thread(trace, i)->dropped;
  }
  size_t used = 0, warnings = json_array_size(tui->replay.warnings) + (tui->replay.notes.damaged_threads != 0);
  if (tui->is_growing) {
    used += (size_t)snprintf(rest + used, sizeof(rest) - used, "  it goes on");
  }
  if (dropped != 0) {
    used += (size_t)snprintf(rest + used, sizeof(rest) - used, "  %s dropped", ct_format_count(lost, dropped));
  }
  if (warnings != 0 || tui->replay.notes.damaged_threads != 0) {
    snprintf(rest + used, sizeof(rest) - used, "  %zu warning%s: w%s", warnings, warnings == 1 ? "" : "s",
             ct_trace_damage_count(trace) + tui->replay.notes.damaged_threads != 0 ? "  DAMAGED" : "");
  }
  attron(A_BOLD);
  ct_screen_line(0, "? keys%s  %s functions called, %s events, %" PRIu32 " thread%s  %s", rest,
                 ct_format_count(functions, tui->data.function_count),
                 ct_format_count(events, tui->data.events > 0 ? (uint64_t)tui->data.events : 0),
                 ct_trace_thread_count(trace), ct_trace_thread_count(trace) == 1 ? "" : "s", tui->name);
  attroff(A_BOLD);
}

static const char *const keys[] = {
    "Tab  Shift-Tab        the next pane, the one before; z: this one alone",
    "up down j k           one line; page up, page down, Home, End",
    "Enter                 report, graph: this function in all panes, replay at its longest call",
    "                      replay, source: fold the call, or show what is in it",
    "right left  + -       unfold, fold (graph, replay)",
    "/  n  N               search for a name; the next, the one before (replay: the next call in time)",
    "c  C                  replay: the next call of the function, the one before",
    "s  S                  sort the report by the next column, the one before",
    "f                     report: only functions that match a pattern; an empty one: all",
    "r                     graph: callers of the function, or what it calls",
    "o                     graph: the outermost functions again",
    "p                     graph: paths, or the sums of each caller on all paths",
    "t                     replay: only this line's thread, or all",
    "d  D                  replay: fold what is deeper than this line; show all depths",
    ":                     replay: go to a time (1.5, 20ms, 10:15:30)",
    "i                     what is known of this call or function",
    "F                     replay: go to the end, and stay there while the recording goes on",
    "w                     warnings about the trace",
    "Ctrl-C                give up what takes long; q: leave",
};

static void
draw_text(const struct screen *screen)
{
  int y = 1;
  for (size_t i = screen->text_first; i < json_array_size(screen->text) && y < LINES - 1; i++) {
    ct_screen_text(y++, 0, COLS, json_string_value(json_array_get(screen->text, i)));
  }
}

static void
draw(struct screen *screen)
{
  ct_screen_fit();
  erase();
  lay_out(screen);
  draw_heading(screen);
  if (screen->text != NULL) {
    draw_text(screen);
    ct_screen_text(LINES - 1, 0, COLS, "any key: back");
  } else {
    for (int i = 0; i < TUI_PANES; i++) {
      if (screen->panes[i].height > 1 && screen->panes[i].width > 1) {
        tui_draw_pane(screen, (enum tui_pane)i);
      }
    }
    ct_screen_text(LINES - 1, 0, COLS, screen->said);
  }
  refresh();
}

/* ---- texts over the panes ---- */

static void
show_text(struct screen *screen, json_t *lines)
{
  json_decref(screen->text);
  screen->text = lines;
  screen->text_first = 0;
}

static void
show_keys(struct screen *screen)
{
  json_t *lines = json_array();
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    json_array_append_new(lines, json_string(keys[i]));
  }
  show_text(screen, lines);
}

static void
show_warnings(struct screen *screen)
{
  const struct tui *tui = screen->tui;
  json_t *lines = json_array();
  json_array_extend(lines, tui->replay.warnings);
  if (tui->replay.notes.damaged_threads != 0) {
    json_array_append_new(lines, json_sprintf("the files of %" PRIu32 " threads (the first is %" PRIu32
                                              ") are damaged or cut; what comes before is shown",
                                              tui->replay.notes.damaged_threads, tui->replay.notes.first_damaged_tid));
  }
  if (json_array_size(lines) == 0) {
    json_array_append_new(lines, json_string("there are none"));
  }
  show_text(screen, lines);
}

/* ---- keys ---- */

void
tui_say(struct screen *screen, const struct ct_diag *diag)
{
  if (diag->text[0] != '\0') {
    snprintf(screen->said, sizeof(screen->said), "%s", diag->text);
  }
}

static void
focus_on(struct screen *screen, int pane)
{
  screen->focus = (enum tui_pane)((pane + TUI_PANES) % TUI_PANES);
  if (screen->focus <= TUI_GRAPH) {
    screen->last_left = screen->focus;
  } else {
    screen->last_right = screen->focus;
  }
}

static void
search(struct screen *screen)
{
  char text[sizeof(screen->searched)] = "";
  if (ct_screen_ask("/", text, sizeof(text)) && text[0] != '\0') {
    memcpy(screen->searched, text, sizeof(text));
    tui_search(screen, true);
  }
}

static void
choose_pattern(struct screen *screen)
{
  struct tui *tui = screen->tui;
  struct ct_diag diag = {""};
  char text[sizeof(tui->pattern)];
  memcpy(text, tui->pattern, sizeof(text));
  if (ct_screen_ask("only functions that match: ", text, sizeof(text)) && tui_choose_rows(tui, text, &diag) == CT_OK) {
    tui->row_first = tui->row_selected = 0;
  }
  tui_say(screen, &diag);
}

/* Keys that are for all panes. False: it is none of them. */
static bool
press_any(struct screen *screen, int key)
{
  struct tui *tui = screen->tui;
  switch (key) {
  case '?':
  case 'h':
    show_keys(screen);
    break;
  case '\t':
  case KEY_BTAB:
    focus_on(screen, (int)screen->focus + (key == '\t' ? 1 : -1));
    break;
  case 'z':
    screen->is_zoomed = !screen->is_zoomed;
    break;
  case '/':
    search(screen);
    break;
  case 'n':
  case 'N':
    tui_search(screen, key == 'n');
    break;
  case 's':
  case 'S':
    tui->sort = (enum tui_sort)(((int)tui->sort + (key == 's' ? 1 : -1) + TUI_SORTS) % TUI_SORTS);
    tui_sort_rows(tui);
    tui->row_first = tui->row_selected = 0;
    break;
  case 'f':
    choose_pattern(screen);
    break;
  case 'w':
    show_warnings(screen);
    break;
  case 'i': {
    json_t *about = tui_about(screen);
    if (about != NULL) {
      show_text(screen, about);
    }
    break;
  }
  default:
    return false;
  }
  return true;
}

/* False: leave. */
static bool
press(struct screen *screen, int key)
{
  screen->said[0] = '\0';
  if (screen->text != NULL) {
    size_t page = LINES > 3 ? (size_t)LINES - 3 : 1, count = json_array_size(screen->text);
    if (key == KEY_DOWN || key == KEY_NPAGE || key == ' ') {
      size_t to = screen->text_first + (key == KEY_DOWN ? 1 : page);
      screen->text_first = to < count ? to : screen->text_first;
      return true;
    }
    if (key != KEY_RESIZE) {
      show_text(screen, NULL);
    }
    return true;
  }
  if (key == 'q') {
    return false;
  }
  if (key != KEY_RESIZE && !press_any(screen, key)) {
    tui_press_pane(screen, key);
  }
  return true;
}

/* Of a recording that goes on, as often as the reading allows. */
static void
refresh_trace(struct screen *screen)
{
  struct tui *tui = screen->tui;
  struct ct_diag diag = {""};
  uint64_t begin = now_ms();
  if (!tui->is_growing || begin < screen->refresh_ms) {
    return;
  }
  running = NULL;
  tui_refresh(tui, &diag);
  running = tui->data.sql;
  if (screen->follows) {
    tui_replay_go_to_end(&tui->replay, &tui->data, &diag);
  }
  tui_say(screen, &diag);
  uint64_t end = now_ms(), took = (end - begin) * 10;
  screen->refresh_ms = end + (took > REFRESH_MS ? took : REFRESH_MS);
}

static void
run_screen(struct screen *screen)
{
  running = screen->tui->data.sql;
  for (;;) {
    draw(screen);
    timeout(TICK_MS);
    sig_atomic_t before = interrupts;
    int key = getch();
    if (key == ERR && interrupts != before) { /* nothing was under way */
      break;
    }
    if (key != ERR && !press(screen, key)) {
      break;
    }
    if (key == ERR) {
      struct ct_diag diag = {""};
      tui_take_paths(screen->tui, 0, &diag);
      tui_say(screen, &diag);
      refresh_trace(screen);
    }
  }
  running = NULL;
}

int
tui_screen(struct tui *tui)
{
  struct screen screen = {.tui = tui, .last_left = TUI_REPORT, .last_right = TUI_REPLAY};
  struct sigaction action = {.sa_handler = interrupt}, old;
  sigaction(SIGINT, &action, &old);
  if (!ct_screen_open()) {
    return ct_usage_error(tui->command, "the terminal '%s' is not known", getenv("TERM") != NULL ? getenv("TERM") : "");
  }
  run_screen(&screen);
  ct_screen_close();
  sigaction(SIGINT, &old, NULL);
  json_decref(screen.text);
  return CT_EXIT_OK;
}
