/* SPDX-License-Identifier: MIT */
/*
 * See live.h. Each thread has a builder of spans that follows its file. What one look reads goes into `last`, which is
 * then added to `all`. Self times are those of calls that have ended and, so far, of those that are open: what is
 * "last" of them is the difference to the look before, so that a call of an hour shows in each second of it.
 *
 * Functions are written before the blocks that have them. So a look first notes how long the threads' files are, then
 * takes in what functions there are, and then reads the blocks up to there: it knows all of their functions.
 *
 * Memory: a builder has 24 bytes for each function; BUILDERS_BYTES of them there are at most, and threads that have
 * ended give theirs back.
 */
#include <contrail/live.h>

#include "base/clock.h"
#include "base/sized.h"
#include "span/stats.h"
#include "trace/batch.h"

#include <contrail/filter.h>

#include <stdlib.h>
#include <string.h>

#define BUILDERS_BYTES (1ull << 30)
/* The manifest may say that a thread has exited before its last block is written. */
enum { SILENT_LOOKS = 10 };

struct follower {
  struct ct_spans *spans; /* NULL: not begun, or done with */
  bool is_over;
  bool is_damaged;
  uint32_t silent; /* looks in a row that found nothing of a thread that has exited */
  uint64_t events, last_events, lost, open, offset;
  uint64_t bytes; /* of its file, when the look began */
};

/* Of a function, with those that are open. */
struct times {
  uint64_t open;     /* calls */
  int64_t open_self; /* ticks */
  uint64_t self;     /* of all calls, at the look before */
  uint64_t self_now;
};

struct ct_live {
  struct ct_trace *trace;
  struct follower *followers;
  uint32_t follower_count, next;
  uint32_t builders;
  struct ct_stats all, last;
  struct times *times; /* of each function, and others */
  uint32_t fn_count;
  struct ct_live_row *rows;
  size_t row_count;
  enum ct_live_sort sort;
  struct ct_filter_compiled *filter;
  uint64_t begun_ns; /* of the last look; 0: there was none */
  bool was_whole;    /* it read all there was */
  uint64_t deadline_ns;
  struct ct_spans *reading;
};

/* ---- open, close ---- */

int
ct_live_open(const char *directory, struct ct_live **out, struct ct_diag *diag)
{
  struct ct_live *live = calloc(1, sizeof(*live));
  if (live == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory to follow %s", directory);
  }
  struct ct_trace_kept kept = {.struct_size = sizeof(kept)};
  int code = ct_trace_open(directory, &live->trace, diag);
  if (code != 0) {
    goto close_live;
  }
  ct_trace_get_kept(live->trace, &kept);
  if ((kept.is_kept && !ct_trace_is_complete(live->trace)) || ct_trace_is_atf(live->trace)) {
    code = ct_fail(diag, CT_EUNSUPPORTED, "%s cannot be followed: %s", directory,
                   kept.is_kept ? "it keeps the last stretch only (record --last, --max-size); contrail dump writes it"
                                : "it is in the format ATF V2");
    goto close_live;
  }
  live->fn_count = ct_trace_function_count(live->trace);
  live->times = calloc((size_t)live->fn_count + 1, sizeof(*live->times));
  if (live->times == NULL || ct_stats_init(&live->all, live->fn_count) != 0 ||
      ct_stats_init(&live->last, live->fn_count) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory to follow %s", directory);
    goto close_live;
  }
  *out = live;
  return CT_OK;
close_live:
  ct_live_close(live);
  return code;
}

void
ct_live_close(struct ct_live *live)
{
  if (live == NULL) {
    return;
  }
  for (uint32_t i = 0; i < live->follower_count; i++) {
    ct_spans_close(live->followers[i].spans);
  }
  free(live->followers);
  if (live->all.fns != NULL) {
    ct_stats_destroy(&live->all);
  }
  if (live->last.fns != NULL) {
    ct_stats_destroy(&live->last);
  }
  ct_filter_free_compiled(live->filter);
  free(live->times);
  free(live->rows);
  ct_trace_close(live->trace);
  free(live);
}

/* ---- a look ---- */

/* What is known of functions, for more of them. */
static int
grow_stats(struct ct_live *live)
{
  uint32_t count = ct_trace_function_count(live->trace), old = live->fn_count;
  struct ct_stats all, last;
  if (count <= old) {
    return 0;
  }
  struct times *times = reallocarray(live->times, (size_t)count + 1, sizeof(*times));
  if (times == NULL || ct_stats_init(&all, count) != 0) {
    live->times = times != NULL ? times : live->times;
    return CT_ENOMEM;
  }
  live->times = times;
  times[count] = times[old];
  memset(times + old, 0, (count - old) * sizeof(*times));
  int code = ct_stats_init(&last, count);
  for (uint32_t i = 0; code == 0 && i < live->all.touched_count; i++) {
    uint32_t fn = live->all.touched[i];
    code = ct_stats_merge_one(&all, fn == old ? count : fn, &live->all, fn);
  }
  if (code != 0) {
    ct_stats_destroy(&all);
    return CT_ENOMEM;
  }
  ct_stats_destroy(&live->all);
  ct_stats_destroy(&live->last);
  live->all = all;
  live->last = last;
  live->fn_count = count;
  return 0;
}

static int
grow_followers(struct ct_live *live)
{
  uint32_t threads = ct_trace_thread_count(live->trace);
  if (threads <= live->follower_count) {
    return 0;
  }
  struct follower *followers = reallocarray(live->followers, threads, sizeof(*followers));
  if (followers == NULL) {
    return CT_ENOMEM;
  }
  memset(followers + live->follower_count, 0, (threads - live->follower_count) * sizeof(*followers));
  live->followers = followers;
  live->follower_count = threads;
  return 0;
}

/* Those that are followed, with the functions, the news and the threads that there are now. */
static int
grow(struct ct_live *live, bool has_news)
{
  int code = grow_stats(live);
  if (code != 0) {
    return code;
  }
  for (uint32_t i = 0; has_news && i < live->follower_count; i++) {
    code = live->followers[i].spans != NULL ? ct_spans_grow(live->followers[i].spans) : 0;
    if (code != 0) {
      return code;
    }
  }
  return grow_followers(live);
}

/* Takes in what the trace has got: threads, functions, its end. */
static int
refresh(struct ct_live *live, struct ct_diag *diag)
{
  bool was_complete = ct_trace_is_complete(live->trace);
  uint32_t functions = ct_trace_function_count(live->trace);
  int code = ct_trace_refresh(live->trace, diag);
  if (code != 0) {
    return code;
  }
  code = grow(live,
              functions != ct_trace_function_count(live->trace) || was_complete != ct_trace_is_complete(live->trace));
  return code == 0 ? 0 : ct_fail(diag, code, "out of memory for the functions of %s", ct_trace_path(live->trace));
}

/* As often as a block was read. */
static void
look_at_clock(void *arg, uint64_t offset)
{
  const struct ct_live *live = arg;
  (void)offset;
  if (live->deadline_ns != 0 && ct_now_ns() >= live->deadline_ns) {
    ct_spans_pause(live->reading);
  }
}

/* The open calls of one thread. Those of a stack come outermost first, each with its age and that of what it called. */
struct open_calls {
  struct ct_live *live;
  struct follower *follower;
  struct times *above;
  uint32_t context;
};

static int
add_open(void *arg, const struct ct_span_open_frame *frame)
{
  struct open_calls *open = arg;
  struct ct_live *live = open->live;
  struct times *times = &live->times[frame->fn < live->fn_count ? frame->fn : live->fn_count];
  times->open++;
  times->open_self += (int64_t)(frame->age_ticks - frame->child_ticks);
  if (open->above != NULL && open->context == frame->context) {
    open->above->open_self -= (int64_t)frame->age_ticks;
  }
  open->above = times;
  open->context = frame->context;
  open->follower->open++;
  return 0;
}

static void
finish(struct ct_live *live, struct follower *follower)
{
  follower->is_damaged = ct_spans_state(follower->spans) == CT_CURSOR_DAMAGED;
  ct_spans_close(follower->spans);
  follower->spans = NULL;
  follower->is_over = true;
  follower->open = 0;
  live->builders--;
}

/* Reads on in one thread. */
static int
follow(struct ct_live *live, uint32_t thread, struct ct_diag *diag)
{
  struct follower *follower = &live->followers[thread];
  bool is_complete = ct_trace_is_complete(live->trace);
  bool has_exited = ct_trace_thread(live->trace, thread)->exited != 0;
  if (follower->is_over) {
    return 0;
  }
  if (follower->spans == NULL) {
    if (live->builders != 0 && (live->builders + 1) * (live->fn_count + 1ull) * 24 > BUILDERS_BYTES) {
      return 0;
    }
    int code = ct_spans_open(live->trace, thread, CT_TIME_WALL, &follower->spans, diag);
    if (code != 0) {
      return code;
    }
    live->builders++;
  }
  ct_spans_follow(follower->spans, !is_complete);
  ct_spans_stop_at(follower->spans, is_complete ? UINT64_MAX : follower->bytes);
  live->reading = follower->spans;
  uint64_t events = ct_spans_events(follower->spans);
  int code = ct_spans_sum(follower->spans, &live->last, look_at_clock, live);
  if (code != 0) {
    return ct_fail(diag, code, "out of memory for the calls of a thread");
  }
  follower->last_events += ct_spans_events(follower->spans) - events;
  follower->events = ct_spans_events(follower->spans);
  follower->lost = ct_spans_lost(follower->spans);
  follower->offset = ct_spans_offset(follower->spans);
  bool is_silent = has_exited && follower->last_events == 0 && ct_spans_open_frames(follower->spans) == 0;
  follower->silent = is_silent && !ct_spans_is_paused(follower->spans) ? follower->silent + 1 : 0;
  if (!ct_spans_is_paused(follower->spans) && (is_complete || follower->silent >= SILENT_LOOKS)) {
    finish(live, follower);
  }
  return 0;
}

/* What is open now, of all threads. */
static int
count_open(struct ct_live *live)
{
  for (uint32_t fn = 0; fn <= live->fn_count; fn++) {
    struct times *times = &live->times[fn];
    times->open = 0;
    times->open_self = 0;
  }
  int code = 0;
  for (uint32_t i = 0; code == 0 && i < live->follower_count; i++) {
    struct open_calls open = {.live = live, .follower = &live->followers[i]};
    open.follower->open = 0;
    code = open.follower->spans != NULL ? ct_spans_each_open(open.follower->spans, add_open, &open) : 0;
  }
  for (uint32_t fn = 0; code == 0 && fn <= live->fn_count; fn++) {
    struct times *times = &live->times[fn];
    int64_t self = (int64_t)live->all.fns[fn].self_ticks + times->open_self;
    times->self = times->self_now;
    times->self_now = self > 0 ? (uint64_t)self : 0;
  }
  return code;
}

/* What the followers say together. */
static void
report(const struct ct_live *live, struct ct_live_state *state)
{
  bool all_over = true;
  for (uint32_t i = 0; i < live->follower_count; i++) {
    const struct follower *follower = &live->followers[i];
    bool is_begun = follower->spans != NULL || follower->is_over;
    state->events += follower->events;
    state->lost += follower->lost;
    state->bytes_left += follower->bytes > follower->offset ? follower->bytes - follower->offset : 0;
    state->threads_left += !is_begun;
    state->damaged += follower->is_damaged;
    all_over = all_over && follower->is_over;
  }
  state->threads = live->follower_count;
  state->ended = ct_trace_is_complete(live->trace) && all_over;
}

int
ct_live_poll(struct ct_live *live, uint64_t budget_ns, struct ct_live_state *state, struct ct_diag *diag)
{
  struct ct_live_state own = {.struct_size = sizeof(own)};
  uint64_t now = ct_now_ns();
  own.last_ns = live->begun_ns != 0 ? now - live->begun_ns : 0;
  live->begun_ns = now;
  live->deadline_ns = budget_ns != 0 ? now + budget_ns : 0;
  ct_stats_clear(&live->last);
  live->row_count = 0;
  ct_filter_free_compiled(live->filter); /* it knows the functions there were */
  live->filter = NULL;
  int code = refresh(live, diag);
  for (uint32_t i = 0; i < live->follower_count; i++) {
    live->followers[i].bytes = live->followers[i].is_over ? 0 : ct_trace_thread_bytes(live->trace, i);
  }
  code = code == 0 ? refresh(live, diag) : code;
  bool is_whole = true;
  for (uint32_t i = 0; i < live->follower_count; i++) {
    live->followers[i].last_events = 0;
  }
  for (uint32_t i = 0; code == 0 && i < live->follower_count; i++) {
    uint32_t thread = (live->next + i) % live->follower_count;
    struct follower *follower = &live->followers[thread];
    if (live->deadline_ns != 0 && i != 0 && ct_now_ns() >= live->deadline_ns) {
      live->next = thread; /* it is the first one the next time */
      is_whole = false;
      break;
    }
    code = follow(live, thread, diag);
    is_whole = is_whole && (follower->spans == NULL || !ct_spans_is_paused(follower->spans));
  }
  if (code != 0) {
    return code;
  }
  if (ct_stats_merge(&live->all, &live->last) != 0 || count_open(live) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the calls of %s", ct_trace_path(live->trace));
  }
  own.last_is_known = own.last_ns != 0 && is_whole && live->was_whole;
  live->was_whole = is_whole;
  report(live, &own);
  return ct_sized_give(state, &own, sizeof(own), diag);
}

/* ---- rows ---- */

const char *
ct_live_sort_name(enum ct_live_sort sort)
{
  static const char *const names[] = {"last-self", "last-calls", "last-p99", "self", "calls", "p99", "name"};
  return (size_t)sort < sizeof(names) / sizeof(names[0]) ? names[sort] : NULL;
}

static int
compare(const void *a, const void *b, void *arg)
{
  const struct ct_live_row *x = a, *y = b;
  const enum ct_live_sort sort = *(enum ct_live_sort *)arg;
  uint64_t left[] = {x->last_self_ns, x->last_calls, x->last_p99_ns, x->self_ns, x->calls, x->p99_ns, 0};
  uint64_t right[] = {y->last_self_ns, y->last_calls, y->last_p99_ns, y->self_ns, y->calls, y->p99_ns, 0};
  if (left[sort] != right[sort]) {
    return left[sort] > right[sort] ? -1 : 1;
  }
  if (sort != CT_LIVE_NAME && x->self_ns != y->self_ns) {
    return x->self_ns > y->self_ns ? -1 : 1;
  }
  int order = strcmp(x->name, y->name);
  return order != 0 ? order : strcmp(x->module, y->module);
}

static bool
has_durations(const struct ct_fn_stats *fn)
{
  return fn->histogram != NULL && fn->histogram->count != 0;
}

static uint64_t
quantile(const struct ct_live *live, const struct ct_fn_stats *fn)
{
  return fn->histogram != NULL ? ct_trace_ticks_ns(live->trace, ct_histogram_quantile(fn->histogram, 990)) : 0;
}

/* Without those that were open when the recording began, which are no calls of the trace. */
static uint64_t
calls_of(const struct ct_stats *stats, uint32_t fn)
{
  const struct ct_fn_stats *sums = &stats->fns[fn];
  return sums->histogram != NULL ? ct_fn_stats_spans(sums) - stats->before[fn] : 0;
}

static void
make_row(struct ct_live *live, uint32_t fn, struct ct_live_row *row)
{
  const struct ct_trace_function *function = ct_trace_function(live->trace, fn);
  const struct times *times = &live->times[fn];
  uint64_t last = times->self_now > times->self ? times->self_now - times->self : 0;
  *row = (struct ct_live_row){
      .name = function != NULL ? function->name : "?",
      .module = function != NULL ? ct_trace_module_name(live->trace, function->module) : "?",
      .calls = calls_of(&live->all, fn),
      .self_ns = ct_trace_ticks_ns(live->trace, times->self_now),
      .p99_ns = quantile(live, &live->all.fns[fn]),
      .last_calls = calls_of(&live->last, fn),
      .last_self_ns = ct_trace_ticks_ns(live->trace, last),
      .last_p99_ns = quantile(live, &live->last.fns[fn]),
      .open = times->open,
      .has_p99 = has_durations(&live->all.fns[fn]),
      .has_last_p99 = has_durations(&live->last.fns[fn]),
      .is_sampled = live->all.passed_over[fn] != 0 || live->all.counted[fn] != 0,
  };
}

int
ct_live_rows(struct ct_live *live, enum ct_live_sort sort, const char *pattern, size_t *count, struct ct_diag *diag)
{
  struct ct_filter filter = {.struct_size = sizeof(filter), .function = pattern};
  live->row_count = 0;
  ct_filter_free_compiled(live->filter);
  live->filter = NULL;
  int code = pattern != NULL ? ct_filter_compile(&filter, live->trace, &live->filter, diag) : 0;
  if (code != 0) {
    return code;
  }
  struct ct_live_row *rows = reallocarray(live->rows, (size_t)live->fn_count + 1, sizeof(*rows));
  if (rows == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the rows of %s", ct_trace_path(live->trace));
  }
  live->rows = rows;
  for (uint32_t fn = 0; fn <= live->fn_count; fn++) {
    bool was_called = live->all.fns[fn].histogram != NULL || live->times[fn].open != 0;
    if (was_called && (live->filter == NULL || ct_filter_has_function(live->filter, fn))) {
      make_row(live, fn, &rows[live->row_count++]);
    }
  }
  qsort_r(rows, live->row_count, sizeof(*rows), compare, &sort);
  *count = live->row_count;
  return CT_OK;
}

const struct ct_live_row *
ct_live_row(const struct ct_live *live, size_t n)
{
  return n < live->row_count ? &live->rows[n] : NULL;
}

bool
ct_live_thread(const struct ct_live *live, size_t n, struct ct_live_thread *thread)
{
  if (n >= live->follower_count) {
    return false;
  }
  const struct ct_trace_thread *of = ct_trace_thread(live->trace, (uint32_t)n);
  const struct follower *follower = &live->followers[n];
  *thread = (struct ct_live_thread){.tid = of->tid,
                                    .name = of->name,
                                    .events = follower->events,
                                    .last_events = follower->last_events,
                                    .open = follower->open};
  return true;
}
