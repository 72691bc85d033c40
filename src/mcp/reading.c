/* SPDX-License-Identifier: MIT */
/* The readers of what is held, and what is uncertain in it; see held.h. */
#include "mcp/held.h"

#include <contrail/info.h>
#include <contrail/text.h>
#include <contrail/view.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { QUERY_SECONDS = 60, DOUBTS_MAX = 6, LOCK_STEP_NS = 50000000 };

/* ---- traces from the disk that change ---- */

static bool
is_whole(const char *directory)
{
  struct ct_trace *trace;
  if (ct_trace_open(directory, &trace, NULL) != 0) {
    return false;
  }
  bool whole = ct_trace_is_complete(trace);
  ct_trace_close(trace);
  return whole;
}

/*
 * Looks at the files again: the number of this look, another one when they have changed since the last. Of a trace that
 * is whole only a new manifest tells that; sessions of our own have their stages.
 */
static unsigned
look(struct mcp_held *held)
{
  char path[PATH_MAX];
  struct stat found = {0};
  if (held->session != NULL) {
    return 0;
  }
  snprintf(path, sizeof(path), "%.4000s/manifest.json", held->place);
  pthread_mutex_lock(&held->reading);
  bool is_there = stat(path, &found) == 0;
  struct mcp_stamp now = {.device = is_there ? found.st_dev : 0,
                          .inode = is_there ? found.st_ino : 0,
                          .size = is_there ? (uint64_t)found.st_size : 0,
                          .seconds = is_there ? (uint64_t)found.st_mtim.tv_sec : 0,
                          .nanoseconds = is_there ? (uint64_t)found.st_mtim.tv_nsec : 0};
  bool was_whole = held->look != 0 && held->stamp.mark == 0;
  now.mark = was_whole ? 0 : mcp_disk_mark(held->place);
  if (held->look == 0 || memcmp(&now, &held->stamp, sizeof(now)) != 0) {
    now.mark = is_there && is_whole(held->place) ? 0 : mcp_disk_mark(held->place);
    held->stamp = now; /* that of the manifest is from before: should it be new since, the next look sees that */
    held->look++;
    json_decref(held->facts);
    held->facts = NULL;
  }
  unsigned number = held->look;
  pthread_mutex_unlock(&held->reading);
  return number;
}

/* ---- SQL ---- */

/* While an index is made; the one whose query it is made for holds the lock. */
static int
on_progress(void *argument, uint64_t done, uint64_t total)
{
  const struct mcp_held *held = argument;
  if (held->reader != NULL) {
    mcp_progress(held->reader, (double)done, (double)total, "making the index");
  }
  return held->reader != NULL && mcp_is_cancelled(held->reader);
}

static unsigned
workers(void)
{
  cpu_set_t processors;
  int count = sched_getaffinity(0, sizeof(processors), &processors) == 0 ? CPU_COUNT(&processors) : 1;
  return count > 0 ? (unsigned)count : 1;
}

/* Others' queries come first, but nobody waits for them who is not wanted any more. */
static bool
lock_database(struct mcp_call *call, struct mcp_held *held)
{
  struct timespec until;
  for (;;) {
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOCK_STEP_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_mutex_timedlock(&held->asking, &until) == 0) {
      return true;
    }
    if (mcp_is_cancelled(call->request)) {
      return mcp_fail(call, "cancelled");
    }
  }
}

struct ct_sql *
mcp_sql_take(struct mcp_call *call, struct mcp_held *held)
{
  struct ct_diag diag = {""};
  struct ct_sql_options options = {.struct_size = sizeof(options),
                                   .format = CT_SQL_JSON_ROWS,
                                   .limit = MCP_ROWS_MAX,
                                   .timeout_ms = QUERY_SECONDS * 1000,
                                   .workers = workers(),
                                   .progress = {on_progress, NULL, held},
                                   .one_statement = true};
  bool is_live = mcp_held_is_live(held);
  if (!lock_database(call, held)) {
    return NULL;
  }
  unsigned seen = look(held);
  if (held->sql != NULL && (is_live || held->is_of_live || seen != held->sql_look)) { /* it sees what there was */
    ct_sql_close(held->sql);
    held->sql = NULL;
    held->has_source = false;
  }
  held->reader = call->request;
  held->is_of_live = is_live;
  held->sql_look = seen;
  int code = held->sql != NULL ? 0 : ct_sql_open(&options, &held->sql, &diag);
  if (code == 0 && !held->has_source) {
    code = ct_sql_add(held->sql, held->place, &diag);
  }
  held->has_source = code == 0;
  if (code != 0) {
    ct_sql_close(held->sql);
    held->sql = NULL;
    held->reader = NULL;
    pthread_mutex_unlock(&held->asking);
    mcp_fail(call, "%s", diag.text);
    return NULL;
  }
  return held->sql;
}

void
mcp_sql_give(struct mcp_held *held)
{
  held->reader = NULL;
  pthread_mutex_unlock(&held->asking);
}

/* ---- views ---- */

static bool
parse_numbers(struct mcp_call *call, const json_t *given, struct ct_filter *filter)
{
  struct ct_diag diag = {""};
  const char *least = mcp_get_text(given, "min_duration"), *most = mcp_get_text(given, "max_duration"),
             *reasons = mcp_get_text(given, "reason"), *types = mcp_get_text(given, "type"),
             *depth = mcp_get_text(given, "depth");
  bool good = (least == NULL || ct_filter_parse_duration(least, &filter->min_ns, &diag) == 0) &&
              (most == NULL || ct_filter_parse_duration(most, &filter->max_ns, &diag) == 0) &&
              (reasons == NULL || ct_filter_parse_reasons(reasons, &filter->reasons, &diag) == 0) &&
              (types == NULL || ct_filter_parse_types(types, &filter->types, &diag) == 0) &&
              (depth == NULL || ct_filter_parse_depth(depth, filter, &diag) == 0);
  return good || mcp_fail(call, "filter: %s", diag.text);
}

static bool
parse_times(struct mcp_call *call, const json_t *given, struct mcp_view *view)
{
  struct ct_diag diag = {""};
  const char *from = mcp_get_text(given, "from"), *to = mcp_get_text(given, "to");
  struct ct_filter *filter = &view->filter;
  uint64_t number = mcp_get_count(given, "window", 0);
  if (number != 0) {
    struct ct_trace_window window;
    if (number > ct_trace_window_count(view->trace) || !ct_trace_window(view->trace, number - 1, &window)) {
      return mcp_fail(call, "there is no window %llu: the trace has %zu", (unsigned long long)number,
                      ct_trace_window_count(view->trace));
    }
    filter->from_tsc = window.begin_tsc;
    filter->to_tsc = window.end_tsc;
  }
  if (ct_filter_parse_piece(view->trace, from, to, filter, &diag) != 0) {
    return mcp_fail(call, "filter: %s", diag.text);
  }
  return ct_filter_set_range(filter, view->trace) == 0 || mcp_fail(call, "out of memory");
}

/* A trace of one's own, perhaps that of another process. */
static bool
open_own(struct mcp_call *call, const struct mcp_held *held, struct mcp_view *view)
{
  struct ct_diag diag = {""};
  struct ct_trace *selected;
  if (ct_trace_open(held->place, &view->trace, &diag) != 0) {
    return mcp_fail(call, "%s", diag.text);
  }
  view->is_private = true;
  if (view->pid == 0) {
    return true;
  }
  if (ct_filter_open_process(view->trace, view->pid, &selected, &diag) != 0) {
    return mcp_fail(call, "%s", diag.text);
  }
  if (selected != view->trace) {
    ct_trace_close(view->trace);
    view->trace = selected;
  }
  return true;
}

/* The one that is kept; it has changed, and others still look at it: one's own. */
static bool
open_warm(struct mcp_call *call, struct mcp_held *held, struct mcp_view *view)
{
  struct ct_diag diag = {""};
  unsigned seen = look(held);
  int code = 0;
  pthread_mutex_lock(&held->reading);
  bool is_old = held->trace != NULL && held->trace_look != seen, is_free = held->trace_users == 0;
  if (is_old && is_free) {
    ct_trace_close(held->trace);
    held->trace = NULL;
  }
  if (held->trace == NULL) {
    code = ct_trace_open(held->place, &held->trace, &diag);
    held->trace_look = seen;
  }
  if (code == 0 && (!is_old || is_free)) {
    view->trace = held->trace;
    view->warm = held;
    held->trace_users++;
  }
  pthread_mutex_unlock(&held->reading);
  if (code != 0) {
    return mcp_fail(call, "%s", diag.text);
  }
  return view->warm != NULL || open_own(call, held, view);
}

bool
mcp_view_open(struct mcp_call *call, struct mcp_held *held, const json_t *given, struct mcp_view *view)
{
  *view = (struct mcp_view){.filter = {.struct_size = sizeof(view->filter)}};
  struct ct_filter *filter = &view->filter;
  view->tid = (uint32_t)mcp_get_count(given, "thread", 0);
  view->pid = (uint32_t)mcp_get_count(given, "process", 0);
  filter->function = mcp_get_text(given, "function");
  filter->module = mcp_get_text(given, "module");
  filter->file = mcp_get_text(given, "file");
  filter->tids = &view->tid;
  filter->tid_count = view->tid != 0 ? 1 : 0;
  bool has_range = mcp_get_text(given, "from") != NULL || mcp_get_text(given, "to") != NULL ||
                   mcp_get_count(given, "window", 0) != 0;
  bool good = parse_numbers(call, given, filter) &&
              (has_range || view->pid != 0 || mcp_held_is_live(held) ? open_own(call, held, view)
                                                                     : open_warm(call, held, view)) &&
              (!has_range || parse_times(call, given, view));
  if (!good) {
    mcp_view_close(view);
  }
  return good;
}

void
mcp_view_close(struct mcp_view *view)
{
  if (view->is_private) {
    ct_trace_close(view->trace);
  } else if (view->warm != NULL) {
    pthread_mutex_lock(&view->warm->reading);
    view->warm->trace_users--;
    pthread_mutex_unlock(&view->warm->reading);
  }
  view->trace = NULL;
  view->warm = NULL;
}

void
mcp_report_unmatched(struct mcp_call *call, struct mcp_view *view)
{
  enum { LIKELY = 3 };
  const char *likely[LIKELY] = {"", "", ""};
  const struct ct_filter *filter = &view->filter;
  if (filter->function == NULL && filter->module == NULL && filter->file == NULL) {
    return;
  }
  size_t count = ct_view_matches(view->trace, filter, likely, LIKELY);
  if (count != 0) {
    mcp_doubt(call, "nothing: %zu functions match the filter, and none of them was called so, or passes the rest of it",
              count);
  } else {
    mcp_doubt(call, "nothing: no function of the trace matches the filter%s%s%s%s",
              likely[0][0] != '\0' ? "; perhaps " : "", likely[0], likely[1][0] != '\0' ? ", " : "",
              likely[0][0] != '\0' ? likely[1] : "");
  }
}

/* ---- facts, and what is uncertain ---- */

static json_t *
read_facts(const struct mcp_held *held)
{
  struct ct_trace *trace;
  struct ct_info_options options = {.struct_size = sizeof(options), .json = true};
  char *text = NULL;
  size_t size = 0;
  if (ct_trace_open(held->place, &trace, NULL) != 0) {
    return NULL;
  }
  FILE *out = open_memstream(&text, &size);
  int code = out != NULL ? ct_info_write(trace, &options, out, NULL) : CT_ENOMEM;
  if (out != NULL) {
    fclose(out);
  }
  ct_trace_close(trace);
  json_t *facts = code == 0 ? json_loadb(text, size, JSON_ALLOW_NUL, NULL) : NULL;
  free(text);
  return facts;
}

json_t *
mcp_facts(struct mcp_held *held)
{
  if (mcp_held_is_live(held)) {
    return read_facts(held);
  }
  look(held);
  pthread_mutex_lock(&held->reading);
  if (held->facts == NULL) {
    held->facts = read_facts(held);
  }
  json_t *facts = held->facts != NULL ? json_incref(held->facts) : NULL;
  pthread_mutex_unlock(&held->reading);
  return facts;
}

static void
doubt_session(struct mcp_call *call, struct mcp_held *held)
{
  struct mcp_session *s = held->session;
  struct ct_session_status status = {.struct_size = sizeof(status)};
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS];
  struct ct_session *session = NULL;
  pthread_mutex_lock(&held->server->lock);
  bool is_closing = s->session == NULL && s->stage == MCP_ENDING;
  if (s->session != NULL && s->stage < MCP_DONE) {
    session = s->session;
    s->callers++;
  }
  pthread_mutex_unlock(&held->server->lock);
  if (session == NULL) {
    if (is_closing) {
      mcp_doubt(call, "the recording is just being completed: what came last may be missing");
    }
    return;
  }
  ct_session_get_status(session, &status);
  mcp_session_leave(held);
  if (s->options.last_bytes != 0) {
    mcp_doubt(call,
              "the last stretch is in memory: no call of it can be asked for until session action=dump writes it");
  } else {
    mcp_doubt(call, "the recording goes on: numbers are of now, calls that have not returned are not complete");
  }
  if (status.hooked == 0 && !status.ended) {
    mcp_doubt(call, "nothing is hooked: no calls are recorded until trace action=add finds functions");
  }
  if (status.dropped + status.child_dropped != 0) {
    mcp_doubt(
        call,
        "%s events are LOST (%s recorded): counts are too low; fewer patterns, or lossless: true of a new session, "
        "lose none",
        ct_format_count(a, status.dropped + status.child_dropped),
        ct_format_count(b, status.events + status.child_events));
  }
  if (status.sample_interval > 1) {
    mcp_doubt(call, "light hooks are sampled: one call of %u is recorded", status.sample_interval);
  }
  if (status.budget.limit > 0 && status.budget.sampled + status.budget.counted + status.budget.out != 0) {
    mcp_doubt(call, "for the budget the calls of %zu functions are counted or sampled, of %zu not seen",
              status.budget.sampled + status.budget.counted, status.budget.out);
  }
}

/* What a budget, or light hooks, have left out of a recording that is over. */
static void
doubt_samples(struct mcp_call *call, const json_t *facts)
{
  const json_t *budget = json_object_get(facts, "budget"), *sampling = json_object_get(facts, "sampling");
  size_t out = json_array_size(json_object_get(budget, "were_out"));
  if (mcp_get_number(budget, "limit", 0) > 0) { /* from the first call on */
    mcp_doubt(call,
              "for the budget functions may have been sampled or counted, and %zu were not seen for some time: where a "
              "report has '+' the calls are exact, but times are of the recorded ones alone; with '>' there were more",
              out);
  }
  if (mcp_get_count(sampling, "interval", 1) > 1 || mcp_get_count(sampling, "changes", 0) != 0) {
    mcp_doubt(call, "light hooks were sampled: calls with '~' are estimated");
  }
}

/* What the program waited for is in no call's time, but in the program's. */
static void
doubt_waits(struct mcp_call *call, const json_t *facts)
{
  enum { MS = 1000000, SHARE = 200 };
  char text[CT_DURATION_CHARS];
  uint64_t waited = mcp_get_count(facts, "waited_ns", 0), lasted = mcp_get_count(facts, "duration_ns", 0);
  if (waited >= MS && waited >= lasted / SHARE) {
    mcp_doubt(
        call,
        "the program waited %s, all threads together, for room for events (lossless): no call's time has that, but "
        "the program took so much longer",
        ct_format_duration(text, waited));
  }
}

/* Patterns of a recording that is over which have selected nothing. */
static void
doubt_patterns(struct mcp_call *call, const json_t *facts)
{
  enum { REPORTED = 5 };
  size_t i, reported = 0;
  const json_t *pattern;
  json_array_foreach(json_object_get(facts, "patterns"), i, pattern)
  {
    bool is_matched = mcp_get_count(pattern, "matched", 1) != 0;
    const char *note = mcp_get_text(pattern, "note");
    if ((is_matched && mcp_get_count(pattern, "hooked", 1) != 0) || reported++ >= REPORTED) {
      continue;
    }
    mcp_doubt(call, "the pattern '%.200s' %s%s%s", mcp_get_text(pattern, "pattern"),
              is_matched ? "matched functions, but none that can be hooked: trace action=try says why"
              : note == NULL
                  ? "matched no function: trace action=try with the program's file finds names that are like it"
                  : "matched no function",
              note != NULL ? ": " : "", note != NULL ? note : "");
  }
  if (reported > REPORTED) {
    mcp_doubt(call, "%zu patterns more matched nothing", reported - REPORTED);
  }
}

void
mcp_doubt_light(struct mcp_call *call, const json_t *patterns)
{
  size_t i, light = 0;
  const json_t *one;
  const char *first = NULL;
  char others[48] = "";
  json_array_foreach((json_t *)patterns, i, one)
  {
    const char *mode = mcp_get_text(one, "mode");
    if (mode != NULL && strcmp(mode, "light") == 0 && mcp_get_count(one, "hooked", 0) != 0) {
      first = light++ == 0 ? mcp_get_text(one, "pattern") : first;
    }
  }
  if (light > 1) {
    snprintf(others, sizeof(others), " and %zu more", light - 1);
  }
  if (light != 0) {
    mcp_doubt(call,
              "'%.200s'%s: calls only (light), no returns, times or slowest calls; mode: full has them, or 'foo*' in "
              "place of '**'",
              first, others);
  }
}

/* Calls without returns, and so without times, for what the module is; modules without hooks. */
static void
doubt_modules(struct mcp_call *call, const json_t *facts)
{
  enum { REPORTED = 4 };
  size_t i, reported = 0;
  const json_t *one;
  json_array_foreach(json_object_get(facts, "modules"), i, one)
  {
    const char *path = mcp_get_text(one, "path"), *untimed = mcp_get_text(one, "enter_only_because"),
               *not_hooked = mcp_get_text(one, "not_hooked_because");
    const char *slash = path != NULL ? strrchr(path, '/') : NULL, *name = slash != NULL ? slash + 1 : path;
    bool is_untimed = untimed != NULL && mcp_get_count(one, "hooked", 0) != 0;
    if ((is_untimed || not_hooked != NULL) && reported++ < REPORTED) {
      mcp_doubt(call,
                is_untimed ? "%.200s: calls are recorded, but no returns: no times, callers or slowest calls of them "
                             "(%.200s)"
                           : "%.200s: nothing in it is hooked (%.200s)",
                name, is_untimed ? untimed : not_hooked);
    }
  }
}

bool
mcp_suggest_dump(struct mcp_call *call, const struct mcp_held *held)
{
  if (held->session == NULL || held->session->options.last_bytes == 0 || !mcp_held_is_live(held)) {
    return false;
  }
  mcp_suggest(call, "session action=dump session=%s: writes what is in memory as a trace, which can be asked",
              held->name);
  return true;
}

void
mcp_doubts(struct mcp_call *call, struct mcp_held *held)
{
  size_t i;
  json_t *warning;
  bool is_live = mcp_held_is_live(held);
  if (held->session != NULL) {
    doubt_session(call, held);
  }
  json_t *facts = mcp_facts(held);
  if (facts == NULL) {
    return;
  }
  json_array_foreach(json_object_get(facts, "warnings"), i, warning)
  {
    const char *text = json_string_value(warning);
    bool is_known = is_live && (strncmp(text, "INCOMPLETE", 10) == 0 || strstr(text, " of events LOST") != NULL);
    if (i < DOUBTS_MAX && !is_known) {
      mcp_doubt(call, "%s", text);
    }
  }
  if (i > DOUBTS_MAX) {
    mcp_doubt(call, "%zu warnings more: analyze view=info has them", i - DOUBTS_MAX);
  }
  if (mcp_get_count(facts, "dropped", 0) != 0 && !is_live) {
    mcp_suggest(call, "launch or attach with lossless: true, or fewer patterns: %llu events were lost",
                (unsigned long long)mcp_get_count(facts, "dropped", 0)); /* the warning says how much that is */
  }
  if (!is_live && json_is_false(json_object_get(facts, "complete"))) {
    mcp_doubt(call, "the recording was cut short: what came at its end may be missing");
  }
  if (!is_live) {
    doubt_patterns(call, facts);
    doubt_samples(call, facts);
    doubt_waits(call, facts);
  }
  doubt_modules(call, facts);
  mcp_doubt_light(call, json_object_get(facts, "patterns"));
  if (mcp_get_flag(facts, "children_missed")) {
    mcp_doubt(call, "the program had children, which were not recorded (follow: true records them)");
  }
  json_decref(facts);
}
