/* SPDX-License-Identifier: MIT */
/*
 * contrail tui: the window of lines of the replay.
 *
 * Lines are read in pages. A page goes on after the last one: after the first line of the last call that it has, with
 * the lines that came after that passed over. Backwards nothing can be read, so a page begins some time before the
 * window and is read up to it, and the time is made longer or shorter until that fits.
 *
 * A line is taken (take) or not: what is inside of a call that is folded is left out, and where a page ends in such a
 * call the next one begins where the call ends, if one thread is shown. A return becomes part of its call's line when
 * nothing has come between.
 */
#include "cli/tui.h"

#include <stdlib.h>
#include <string.h>

enum {
  PAGE_LINES = 400,
  PAGES_MAX = 60,     /* for one step: what is folded may be long */
  WINDOW_MAX = 8000,  /* lines ... */
  WINDOW_TRIM = 2000, /* ... beyond which so many go at the other end */
  BACK_TRIES = 40,
  BACK_PAGE = 3000,
  END_LINES = 200, /* that are shown of the end at least, and what is read for it */
  END_PAGE = 1500,
  END_TRIES = 16,
  LOOK_BACK = 500,
  ABOVE = 6, /* lines over one that was gone to */
};
#define BACK_FIRST_NS 20000
#define MARGIN_NS     2000 /* of times that were rounded */

/* ---- lists ---- */

bool
tui_lines_add(struct tui_lines *lines, struct tui_line *line)
{
  if (lines->count == lines->capacity) {
    size_t capacity = lines->capacity * 2 + 256;
    struct tui_line *more = reallocarray(lines->lines, capacity, sizeof(*more));
    if (more == NULL) {
      return false;
    }
    lines->lines = more;
    lines->capacity = capacity;
  }
  lines->lines[lines->count++] = *line;
  *line = (struct tui_line){0};
  return true;
}

static void
clear(struct tui_lines *lines)
{
  for (size_t i = 0; i < lines->count; i++) {
    tui_line_free(&lines->lines[i]);
  }
  free(lines->lines);
  free(lines->folds);
  *lines = (struct tui_lines){0};
}

static bool
has_id(const struct tui_ids *ids, int64_t id)
{
  for (size_t i = 0; i < ids->count; i++) {
    if (ids->ids[i] == id) {
      return true;
    }
  }
  return false;
}

static void
add_id(struct tui_ids *ids, int64_t id)
{
  int64_t *more = has_id(ids, id) ? NULL : reallocarray(ids->ids, ids->count + 1, sizeof(*more));
  if (more != NULL) {
    ids->ids = more;
    ids->ids[ids->count++] = id;
  }
}

static void
remove_id(struct tui_ids *ids, int64_t id)
{
  for (size_t i = 0; i < ids->count; i++) {
    if (ids->ids[i] == id) {
      ids->ids[i] = ids->ids[--ids->count];
      return;
    }
  }
}

/* ---- taking lines ---- */

static bool
is_begin(const struct tui_line *line)
{
  return (line->kind == TUI_ENTER || line->kind == TUI_TAIL) && line->id != 0;
}

static struct tui_line *
line_of_call(const struct tui_lines *lines, int64_t id)
{
  for (size_t i = lines->count; i-- > 0 && id != 0;) {
    if (lines->lines[i].id == id && is_begin(&lines->lines[i])) {
      return &lines->lines[i];
    }
  }
  return NULL;
}

static bool
open_fold(struct tui_lines *lines, const struct tui_line *line)
{
  struct tui_fold *more = reallocarray(lines->folds, lines->fold_count + 1, sizeof(*more));
  if (more == NULL) {
    return false;
  }
  lines->folds = more;
  more[lines->fold_count++] = (struct tui_fold){line->tid, line->stack, line->depth, line->id, TUI_NOT_KNOWN};
  return true;
}

/* What has come to an end with the line is part of its begin's line, where that is the last one. True: it is reported.
 */
static bool
join(struct tui_lines *lines, struct tui_line *line, bool is_last)
{
  struct tui_line *begin = line_of_call(lines, line->id);
  if (begin == NULL) {
    return false;
  }
  begin->duration = line->duration;
  if (!is_last && begin != &lines->lines[lines->count - 1]) {
    begin->has_inside = true;
    return false;
  }
  if (line->note != NULL) {
    char *both = NULL;
    if (asprintf(&both, "%s%s", begin->note != NULL ? begin->note : "", line->note) >= 0) {
      free(begin->note);
      begin->note = both;
    }
  }
  tui_line_free(line);
  return true;
}

/* Whether the line is inside of a fold, or its end, so that there is nothing to show; a fold that has ended goes. */
static bool
is_hidden(struct tui_lines *lines, struct tui_line *line)
{
  for (size_t i = 0; i < lines->fold_count; i++) {
    struct tui_fold *fold = &lines->folds[i];
    if (fold->tid != line->tid || fold->stack != line->stack) {
      continue;
    }
    bool ends = line->kind == TUI_END && line->id == fold->id;
    if (ends || (line->kind != TUI_OTHER && line->depth <= fold->depth)) {
      *fold = lines->folds[--lines->fold_count];
      return ends && join(lines, line, true);
    }
    struct tui_line *begin = line_of_call(lines, fold->id);
    if (begin != NULL) {
      begin->has_inside = true;
    }
    tui_line_free(line);
    return true;
  }
  return false;
}

/* The call that the line is inside of has something inside. */
static void
mark_caller(struct tui_lines *lines, const struct tui_line *line)
{
  for (size_t i = lines->count, looked = 0; i-- > 0 && looked < LOOK_BACK; looked++) {
    struct tui_line *before = &lines->lines[i];
    if (before->tid == line->tid && before->stack == line->stack) {
      before->has_inside |= is_begin(before) && before->depth < line->depth;
      return;
    }
  }
}

/* The duration is of the call that the line takes the place of. */
static void
end_by_tail(struct tui_lines *lines, struct tui_line *line)
{
  for (size_t i = lines->count; i-- > 0;) {
    struct tui_line *before = &lines->lines[i];
    if (before->tid == line->tid && before->stack == line->stack && before->kind != TUI_OTHER &&
        before->depth <= line->depth) {
      if (is_begin(before) && before->depth == line->depth && before->duration == TUI_NOT_KNOWN) {
        before->duration = line->duration;
      }
      break;
    }
  }
  line->duration = TUI_NOT_KNOWN;
}

static int
take(const struct tui_replay *replay, struct tui_lines *lines, struct tui_line *line)
{
  if (is_hidden(lines, line) || (line->kind == TUI_END && lines->count != 0 && join(lines, line, false))) {
    return CT_OK;
  }
  bool is_folded = is_begin(line) && !has_id(&replay->unfolded, line->id) &&
                   (has_id(&replay->folded, line->id) || (replay->levels != 0 && line->depth + 1 >= replay->levels));
  line->is_folded = is_folded;
  if (line->kind == TUI_TAIL) {
    end_by_tail(lines, line);
  }
  mark_caller(lines, line);
  if (is_folded && !open_fold(lines, line)) {
    return CT_ENOMEM;
  }
  return tui_lines_add(lines, line) ? CT_OK : CT_ENOMEM;
}

/* ---- forward ---- */

/* Where the window's end is in a fold whose end is known, and nothing else is to be seen: from there. */
static void
pass_over(struct tui_replay *replay, struct tui_data *data)
{
  bool is_one = replay->one_tid != 0 || replay->filter.tid_count == 1 || ct_trace_thread_count(replay->trace) == 1;
  if (!is_one || replay->window.fold_count != 1) {
    return;
  }
  struct tui_fold *fold = &replay->window.folds[0];
  int64_t end = fold->end != TUI_NOT_KNOWN ? fold->end : tui_data_end_of(data, fold->id);
  fold->end = end;
  if (end != TUI_NOT_KNOWN && end - MARGIN_NS > replay->resume_ns) {
    replay->resume_ns = end - MARGIN_NS;
    replay->resume_id = 0;
    replay->resume_skip = 0;
  }
}

/* The page's lines, but for those that were there before, and where the next page goes on. */
static int
take_page(struct tui_replay *replay, struct tui_page *page)
{
  size_t seen = 0, after = 0;
  int64_t id = 0, ns = 0;
  int code = CT_OK;
  for (size_t i = 0; i < page->count && code == CT_OK; i++) {
    struct tui_line *line = &page->lines[i];
    if (page->before[i] && replay->resume_ns > replay->from) {
      continue; /* the frames that are open there */
    }
    seen++;
    after++;
    if (is_begin(line) || (line->kind == TUI_POINT && line->id != 0)) {
      id = line->id;
      ns = line->ns;
      after = 0;
    }
    code = seen > replay->resume_skip ? take(replay, &replay->window, line) : CT_OK;
  }
  if (id != 0) {
    replay->resume_id = id;
    replay->resume_ns = ns > MARGIN_NS ? ns - MARGIN_NS : 0;
    replay->resume_skip = after;
  } else {
    replay->resume_skip = seen;
  }
  return code;
}

int
tui_replay_extend(struct tui_replay *replay, struct tui_data *data, size_t wanted, struct ct_diag *diag)
{
  size_t until = replay->window.count + wanted, limit = PAGE_LINES;
  int code = CT_OK;
  for (int i = 0; i < PAGES_MAX && code == CT_OK && replay->window.count < until && !replay->is_at_end; i++) {
    struct tui_page page;
    size_t skip = replay->resume_skip;
    code = tui_page_read(replay, replay->resume_ns, replay->resume_id, skip + limit, &page, diag);
    if (code != CT_OK) {
      break;
    }
    replay->is_at_end = page.is_last;
    code = take_page(replay, &page);
    limit =
        replay->resume_id == 0 && replay->resume_skip <= skip ? limit * 4 : limit; /* all of it frames that were open */
    tui_page_free(&page);
    if (replay->window.fold_count != 0 && !replay->is_at_end) {
      pass_over(replay, data);
    }
  }
  if (replay->window.count > WINDOW_MAX && replay->selected > WINDOW_TRIM) {
    struct tui_lines *lines = &replay->window;
    for (size_t i = 0; i < WINDOW_TRIM; i++) {
      tui_line_free(&lines->lines[i]);
    }
    lines->count -= WINDOW_TRIM;
    memmove(lines->lines, lines->lines + WINDOW_TRIM, lines->count * sizeof(*lines->lines));
    replay->selected -= WINDOW_TRIM;
    replay->first -= replay->first < WINDOW_TRIM ? replay->first : WINDOW_TRIM;
    replay->is_at_begin = false;
  }
  return code;
}

/* The window ends with this line, which is the begin of a call, and goes on after it when it is extended. */
static void
end_window(struct tui_replay *replay, size_t at)
{
  struct tui_lines *lines = &replay->window;
  struct tui_line *last = &lines->lines[at];
  for (size_t i = at + 1; i < lines->count; i++) {
    tui_line_free(&lines->lines[i]);
  }
  lines->count = at + 1;
  lines->fold_count = 0;
  last->has_inside = false;
  last->duration = TUI_NOT_KNOWN;
  if (last->note != NULL) {
    last->note[last->own_note] = '\0'; /* without what was joined */
  }
  replay->resume_id = last->id;
  replay->resume_ns = last->ns > MARGIN_NS ? last->ns - MARGIN_NS : 0;
  replay->resume_skip = 0;
  replay->is_at_end = false;
}

/* ---- back ---- */

/* The lines of a page that are before the window's first one. False: the page ends before it. */
static bool
take_before(const struct tui_replay *replay, struct tui_page *page, struct tui_lines *lines, int *code)
{
  const struct tui_line *first = &replay->window.lines[0];
  for (size_t i = 0; i < page->count && *code == CT_OK; i++) {
    struct tui_line *line = &page->lines[i];
    bool is_first = line->id == first->id && line->kind == first->kind && line->tid == first->tid &&
                    line->ns == first->ns && !page->before[i];
    if (is_first || line->ns > first->ns) {
      return true;
    }
    if (!page->before[i]) {
      *code = take(replay, lines, line);
    }
  }
  return page->is_last;
}

static int
put_before(struct tui_replay *replay, struct tui_lines *lines)
{
  struct tui_lines *window = &replay->window;
  size_t more = lines->count;
  for (size_t i = 0; i < window->count; i++) {
    if (!tui_lines_add(lines, &window->lines[i])) {
      return CT_ENOMEM;
    }
  }
  free(window->lines);
  window->lines = lines->lines;
  window->count = lines->count;
  window->capacity = lines->capacity;
  free(lines->folds);
  *lines = (struct tui_lines){0};
  replay->first += more;
  replay->selected += more;
  for (size_t at = WINDOW_MAX - WINDOW_TRIM; window->count > WINDOW_MAX && at > replay->selected; at--) {
    if (is_begin(&window->lines[at]) && !window->lines[at].is_folded) {
      end_window(replay, at);
      break;
    }
  }
  return CT_OK;
}

int
tui_replay_extend_back(struct tui_replay *replay, size_t wanted, struct ct_diag *diag)
{
  int64_t least = 0, most = INT64_MAX, back = BACK_FIRST_NS;
  int code = CT_OK;
  if (replay->window.count == 0 || replay->is_at_begin) {
    return CT_OK;
  }
  const struct tui_line *first = &replay->window.lines[0], *last = &replay->window.lines[replay->window.count - 1];
  if (last->ns > first->ns) {
    back = (last->ns - first->ns) / (int64_t)replay->window.count * (int64_t)wanted + 1000;
  }
  for (int i = 0; i < BACK_TRIES && code == CT_OK; i++) {
    struct tui_lines lines = {0};
    struct tui_page page;
    int64_t from = first->ns - back;
    bool is_begin_reached = from <= replay->from;
    code = tui_page_read(replay, from, 0, BACK_PAGE, &page, diag);
    bool is_whole = code == CT_OK && take_before(replay, &page, &lines, &code);
    if (code == CT_OK) {
      tui_page_free(&page);
    }
    bool is_enough = lines.count >= wanted || is_begin_reached || most - least < 64;
    if (code == CT_OK && is_whole && is_enough) {
      replay->is_at_begin = is_begin_reached;
      return put_before(replay, &lines);
    }
    clear(&lines);
    if (is_whole) { /* longer, up to what was too long */
      least = back;
      back = back * 4 < most ? back * 4 : least + (most - least) / 2;
    } else {
      most = back;
      back = back / 8 > least ? back / 8 : least + (most - least) / 2;
    }
  }
  return code;
}

/* ---- going somewhere ---- */

int
tui_replay_go(struct tui_replay *replay, struct tui_data *data, int64_t ns, struct ct_diag *diag)
{
  clear(&replay->window);
  replay->first = replay->selected = 0;
  replay->resume_ns = ns > replay->from ? ns : replay->from;
  replay->resume_id = 0;
  replay->resume_skip = 0;
  replay->is_at_end = false;
  replay->is_at_begin = replay->resume_ns <= replay->from;
  return tui_replay_extend(replay, data, PAGE_LINES / 2, diag);
}

/* The window is this page, which begins there. */
static int
take_first_page(struct tui_replay *replay, int64_t ns, struct tui_page *page)
{
  clear(&replay->window);
  replay->first = replay->selected = 0;
  replay->resume_ns = ns > replay->from ? ns : replay->from;
  replay->resume_id = 0;
  replay->resume_skip = 0;
  replay->is_at_begin = replay->resume_ns <= replay->from;
  replay->is_at_end = page->is_last;
  return take_page(replay, page);
}

/* A page that ends where the trace does, with END_LINES lines at least: it begins some time before, which is guessed.
 */
int
tui_replay_go_to_end(struct tui_replay *replay, struct tui_data *data, struct ct_diag *diag)
{
  int64_t least = 0, most = 0, back = replay->end_back != 0 ? replay->end_back : BACK_FIRST_NS;
  int code = CT_OK;
  for (int i = 0; i < END_TRIES && most - least != 1; i++) {
    size_t count;
    bool is_last;
    if (!tui_page_count(replay, replay->to - back, END_PAGE, &count, &is_last, diag)) {
      return CT_EIO;
    }
    bool is_enough = count >= END_LINES || replay->to - back <= replay->from;
    if (is_enough && is_last) {
      break;
    }
    least = is_enough ? least : back;
    most = is_enough ? back : most;
    back = most == 0 ? back * 8 : least + (most - least) / 2;
  }
  struct tui_page page;
  replay->end_back = back;
  code = tui_page_read(replay, replay->to - back, 0, END_PAGE, &page, diag);
  if (code == CT_OK) {
    code = take_first_page(replay, replay->to - back, &page);
    tui_page_free(&page);
  }
  for (int i = 0; i < PAGES_MAX && code == CT_OK && !replay->is_at_end; i++) {
    code = tui_replay_extend(replay, data, WINDOW_TRIM, diag);
    replay->selected = replay->window.count != 0 ? replay->window.count - 1 : 0;
  }
  replay->selected = replay->window.count != 0 ? replay->window.count - 1 : 0;
  return code;
}

int
tui_replay_show(struct tui_replay *replay, struct tui_data *data, const struct tui_call *call, struct ct_diag *diag)
{
  for (int attempt = 0;; attempt++) {
    for (size_t i = 0; i < replay->window.count; i++) {
      if (replay->window.lines[i].id == call->id && replay->window.lines[i].kind != TUI_END) {
        replay->selected = i;
        replay->first = attempt == 1 ? (i > ABOVE ? i - ABOVE : 0) : replay->first;
        return CT_OK;
      }
    }
    if (attempt == 1) {
      return CT_OK;
    }
    int code = tui_replay_go(replay, data, call->start - MARGIN_NS, diag);
    if (code != CT_OK) {
      return code;
    }
  }
}

int
tui_replay_fold(struct tui_replay *replay, struct tui_data *data, size_t at, bool fold, struct ct_diag *diag)
{
  struct tui_line *line = at < replay->window.count ? &replay->window.lines[at] : NULL;
  if (line == NULL || !is_begin(line) || line->is_folded == fold || (fold && !line->has_inside)) {
    return CT_OK;
  }
  if (fold) {
    add_id(&replay->folded, line->id);
    remove_id(&replay->unfolded, line->id);
  } else {
    remove_id(&replay->folded, line->id);
    add_id(&replay->unfolded, line->id);
  }
  line->is_folded = fold;
  end_window(replay, at);
  if (fold && !open_fold(&replay->window, &replay->window.lines[at])) {
    return CT_ENOMEM;
  }
  replay->selected = at;
  if (fold) {
    pass_over(replay, data);
  }
  return tui_replay_extend(replay, data, PAGE_LINES / 2, diag);
}

/* ---- open and close ---- */

int
tui_replay_reread(struct tui_replay *replay, struct tui_data *data, struct ct_diag *diag)
{
  size_t count = replay->window.count, at = count;
  int64_t selected = (int64_t)replay->selected;
  while (at > 0 && (!is_begin(&replay->window.lines[at - 1]) || replay->window.lines[at - 1].is_folded)) {
    at--;
  }
  int code = CT_OK;
  if (at == 0) {
    code = tui_replay_go(replay, data, count != 0 ? replay->window.lines[0].ns : 0, diag);
  } else {
    end_window(replay, at - 1);
    code = tui_replay_extend(replay, data, count - at + END_LINES, diag);
  }
  replay->selected = selected < (int64_t)replay->window.count ? (size_t)selected : replay->selected;
  return code;
}

static int64_t
since_start(const struct ct_trace *trace, uint64_t tsc)
{
  uint64_t ns = ct_trace_ns(trace, tsc), start = ct_trace_start_ns(trace);
  return ns > start ? (int64_t)(ns - start) : 0;
}

int
tui_replay_open(struct tui_replay *replay, const char *path, const struct ct_filter *filter, struct ct_diag *diag)
{
  struct ct_trace *trace;
  int code = ct_trace_open(path, &trace, diag);
  if (code != CT_OK) {
    return code;
  }
  uint64_t end_tsc = ct_trace_end_tsc(trace);
  ct_trace_close(replay->trace);
  replay->trace = trace;
  replay->filter = *filter;
  replay->from = filter->from_tsc != 0 ? since_start(trace, filter->from_tsc) : 0;
  replay->to = since_start(trace, filter->to_tsc != 0 && filter->to_tsc < end_tsc ? filter->to_tsc : end_tsc);
  struct ct_filter any = {.struct_size = sizeof(any), .from_tsc = 1, .to_tsc = filter->to_tsc};
  code = ct_filter_set_range(&any, trace); /* once: it gives the trace the places that the index knows */
  if (code != CT_OK) {
    snprintf(diag->text, sizeof(diag->text), "%s", ct_err_text(code));
  }
  return code;
}

void
tui_replay_free(struct tui_replay *replay)
{
  clear(&replay->window);
  free(replay->folded.ids);
  free(replay->unfolded.ids);
  json_decref(replay->warnings);
  ct_trace_close(replay->trace);
  *replay = (struct tui_replay){0};
}
