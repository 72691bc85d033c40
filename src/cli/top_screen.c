/* SPDX-License-Identifier: MIT */
/*
 * The screen of contrail top. A look each second; between two of them keys change what is shown of the last one. What a
 * key asks of the session (patterns) waits for its answer, since the process is stopped meanwhile anyway.
 */
#include "cli/screen.h"
#include "cli/top.h"

#include <contrail/text.h>

#include <inttypes.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_BYTES = 256, NAME_BYTES = CT_SCREEN_TEXT_BYTES, HEAD_LINES = 3 };

struct screen {
  struct ct_top *top;
  size_t first, selected; /* rows: the uppermost one, and that with the bar */
  bool shows_threads, shows_keys, is_held;
  char pattern[PATTERN_BYTES]; /* of the filter */
  char said[NAME_BYTES + 64];  /* the line at the bottom, until the next key */
};

/* ---- drawing ---- */

static void
draw_heading(const struct screen *screen)
{
  const struct ct_top *top = screen->top;
  const struct ct_live_state *state = &top->state;
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS], c[CT_COUNT_CHARS] = "?", d[CT_DURATION_CHARS], rest[200] = "",
                                             cost[64] = "?";
  if (top->last_ns != 0) {
    ct_format_count(c, (uint64_t)((double)top->events_last * 1e9 / (double)top->last_ns));
  }
  if (top->overhead_last >= 0) {
    snprintf(cost, sizeof(cost), "%.0f %%", top->overhead_last * 100);
  }
  ct_screen_line(0, "%s %s  %s events  %s/s  %s dropped  hooks %s of its processor time  %" PRIu64 " threads", top->id,
                 screen->is_held       ? "(held)"
                 : top->is_gone        ? "ended"
                 : top->status == NULL ? "does not answer"
                                       : ct_text_of(top->status, "state"),
                 ct_format_count(a, ct_top_events(top)), c, ct_format_count(b, top->dropped), cost, state->threads);
  size_t used = 0;
  if (state->bytes_left != 0) {
    used += (size_t)snprintf(rest + used, sizeof(rest) - used, "  behind by %s", ct_format_bytes(d, state->bytes_left));
  }
  if (state->lost != 0) {
    used += (size_t)snprintf(rest + used, sizeof(rest) - used, "  %s events missing", ct_format_count(a, state->lost));
  }
  if (state->threads_left + state->damaged != 0) {
    used += (size_t)snprintf(rest + used, sizeof(rest) - used, "  %" PRIu64 " threads not shown, %" PRIu64 " damaged",
                             state->threads_left, state->damaged);
  }
  if (ct_number_of(top->status, "children") != 0) {
    snprintf(rest + used, sizeof(rest) - used, "  %" PRIu64 " further processes not shown",
             ct_number_of(top->status, "children"));
  }
  ct_screen_line(1, "%zu functions  sorted by %s  %s%s%s  ? keys", top->row_count, ct_live_sort_name(top->sort),
                 top->pattern != NULL ? "only " : "", top->pattern != NULL ? top->pattern : "", rest);
}

static int
body_lines(void)
{
  return LINES > HEAD_LINES + 1 ? LINES - HEAD_LINES - 1 : 0;
}

static void
draw_rows(struct screen *screen)
{
  const struct ct_top *top = screen->top;
  size_t lines = (size_t)body_lines();
  screen->selected = top->row_count == 0                 ? 0
                     : screen->selected < top->row_count ? screen->selected
                                                         : top->row_count - 1;
  screen->first = screen->selected < screen->first            ? screen->selected
                  : screen->selected >= screen->first + lines ? screen->selected - lines + 1
                                                              : screen->first;
  attron(A_REVERSE);
  mvhline(HEAD_LINES - 1, 0, ' ', COLS);
  char line[CT_TOP_COLUMNS_BYTES];
  unsigned selected = ct_top_columns(top->sort, (unsigned)COLS);
  ct_top_heading(selected, line);
  ct_screen_line(HEAD_LINES - 1, "%sfunction", line);
  attroff(A_REVERSE);
  for (size_t i = 0; i < lines && screen->first + i < top->row_count; i++) {
    const struct ct_live_row *row = ct_live_row(top->live, screen->first + i);
    char name[CT_SCREEN_TEXT_BYTES];
    if (screen->first + i == screen->selected) {
      attron(A_BOLD);
    }
    ct_top_row(selected, row, top->state.last_is_known, line);
    ct_screen_line(HEAD_LINES + (int)i, "%s%s [%s]", line,
                   ct_screen_name(name, row->name, ct_shown_short_names(&top->look)), row->module);
    attroff(A_BOLD);
    if (screen->first + i == screen->selected) {
      mvaddch(HEAD_LINES + (int)i, 0, '>');
    }
  }
}

static void
draw_threads(const struct screen *screen)
{
  struct ct_live_thread thread;
  int lines = body_lines();
  ct_screen_line(HEAD_LINES - 1, "%10s %15s %15s %8s  %s", "thread", "events last", "events", "open", "name");
  for (int i = 0; i < lines && ct_live_thread(screen->top->live, screen->first + (size_t)i, &thread); i++) {
    char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS];
    ct_screen_line(HEAD_LINES + i, "%10u %15s %15s %8" PRIu64 "  %s", thread.tid,
                   ct_format_count(a, thread.last_events), ct_format_count(b, thread.events), thread.open, thread.name);
  }
}

static void
draw_keys(void)
{
  static const char *const keys[] = {
      "s  S        sort by the next, the previous column",
      "up  down    another function (also page up, page down)",
      "/           show only functions that match a pattern; an empty one: all",
      "+           record what matches a pattern; nothing typed: the function with the bar",
      "-           record it no longer: take a pattern off the session's list",
      "x           exclude what matches a pattern",
      "t           threads, or functions",
      "space       hold, go on",
      "q           leave; the recording goes on"};
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    ct_screen_line(HEAD_LINES + (int)i, "  %s", keys[i]);
  }
}

static void
draw(struct screen *screen)
{
  ct_screen_fit();
  erase();
  draw_heading(screen);
  if (screen->shows_keys) {
    draw_keys();
  } else if (screen->shows_threads) {
    draw_threads(screen);
  } else {
    draw_rows(screen);
  }
  ct_screen_line(LINES - 1, "%s", screen->said);
  refresh();
}

/* ---- keys ---- */

/* Of the session: a pattern is added to a list, or taken off it. */
static void
change(struct screen *screen, const char *method, const char *question)
{
  struct ct_top *top = screen->top;
  char pattern[NAME_BYTES] = "";
  struct ct_diag diag = {""};
  int code;
  if (!ct_screen_ask(question, pattern, PATTERN_BYTES)) {
    return;
  }
  if (pattern[0] == '\0' && screen->selected < top->row_count) {
    snprintf(pattern, sizeof(pattern), "%s", ct_live_row(top->live, screen->selected)->name);
  }
  json_t *json = json_pack("{s:[o]}", "patterns", ct_json_text(pattern));
  char *params = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  json_t *answer = params != NULL ? ct_ask(top->id, method, params, CT_CHANGE_MS, &code, &diag) : NULL;
  free(params);
  if (answer != NULL) {
    snprintf(screen->said, sizeof(screen->said), "%s %.900s: done", method, pattern);
  } else {
    snprintf(screen->said, sizeof(screen->said), "%s", diag.text);
  }
  json_decref(answer);
}

static void
choose_functions(struct screen *screen)
{
  struct ct_top *top = screen->top;
  struct ct_diag diag = {""};
  char pattern[PATTERN_BYTES] = "";
  if (!ct_screen_ask("only functions that match: ", pattern, sizeof(pattern))) {
    return;
  }
  int code = ct_live_rows(top->live, top->sort, pattern[0] != '\0' ? pattern : NULL, &top->row_count, &diag);
  if (code != CT_OK) {
    snprintf(screen->said, sizeof(screen->said), "%s", diag.text);
    ct_live_rows(top->live, top->sort, top->pattern, &top->row_count, &diag);
    return;
  }
  memcpy(screen->pattern, pattern, sizeof(pattern));
  top->pattern = pattern[0] != '\0' ? screen->pattern : NULL;
  screen->first = screen->selected = 0;
}

static void
sort_by(struct screen *screen, int step)
{
  struct ct_top *top = screen->top;
  struct ct_diag diag = {""};
  top->sort = (enum ct_live_sort)(((int)top->sort + step + CT_LIVE_SORTS) % CT_LIVE_SORTS);
  ct_live_rows(top->live, top->sort, top->pattern, &top->row_count, &diag);
}

static void
move_bar(struct screen *screen, long by)
{
  long to = (long)screen->selected + by;
  screen->selected = to < 0 ? 0 : (size_t)to; /* draw_rows keeps it among the rows */
}

/* False: leave. */
static bool
press(struct screen *screen, int key)
{
  screen->said[0] = '\0';
  bool shows_keys = screen->shows_keys;
  screen->shows_keys = key == '?' || key == 'h' ? !shows_keys : key == KEY_RESIZE && shows_keys;
  switch (key) {
  case 'q':
    return false;
  case 's':
  case 'S':
    sort_by(screen, key == 's' ? 1 : -1);
    break;
  case KEY_UP:
  case KEY_DOWN:
    move_bar(screen, key == KEY_UP ? -1 : 1);
    break;
  case KEY_PPAGE:
  case KEY_NPAGE:
    move_bar(screen, key == KEY_PPAGE ? -body_lines() : body_lines());
    break;
  case '/':
    choose_functions(screen);
    break;
  case '+':
    change(screen, "trace.add", "record what matches: ");
    break;
  case '-':
    change(screen, "trace.remove", "record no longer what matches: ");
    break;
  case 'x':
    change(screen, "exclude.add", "exclude what matches: ");
    break;
  case 't':
    screen->shows_threads = !screen->shows_threads;
    screen->first = screen->selected = 0;
    break;
  case ' ':
    screen->is_held = !screen->is_held;
    break;
  default:
    break;
  }
  return true;
}

static int
run_screen(struct screen *screen, struct ct_diag *diag)
{
  struct ct_top *top = screen->top;
  uint64_t interval = (uint64_t)(top->interval_s * 1e9), next = ct_top_now_ns();
  for (;;) {
    uint64_t now = ct_top_now_ns();
    if (now >= next && !screen->is_held && !ct_top_is_over(top)) {
      int code = ct_top_look(top, interval * 4 / 5, diag);
      if (code != CT_OK) {
        return code;
      }
      if (ct_top_is_over(top) && top->leaves) {
        return CT_OK;
      }
      if (ct_top_is_over(top)) {
        snprintf(screen->said, sizeof(screen->said), "the recording has ended; q leaves");
      }
    }
    if (now >= next) {
      next = now + interval;
    }
    draw(screen);
    now = ct_top_now_ns();
    timeout(next > now ? (int)((next - now) / 1000000) + 1 : 0);
    int key = getch();
    if (key != ERR && !press(screen, key)) {
      return CT_OK;
    }
  }
}

int
ct_top_screen(struct ct_top *top)
{
  struct screen screen = {.top = top};
  struct ct_diag diag = {""};
  if (!ct_screen_open()) {
    fprintf(stderr, "contrail top: the terminal '%s' is not known; one table each second\n",
            getenv("TERM") != NULL ? getenv("TERM") : "");
    return -1;
  }
  int code = run_screen(&screen, &diag);
  ct_screen_close();
  if (code != CT_OK) {
    ct_command_failed(top->command, "%s", diag.text);
    return code == CT_EINVAL ? CT_EXIT_USAGE : CT_EXIT_FAILED;
  }
  return CT_EXIT_OK;
}
