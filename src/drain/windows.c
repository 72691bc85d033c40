/* SPDX-License-Identifier: MIT */
/*
 * The list of windows, in the order of time and apart from each other. Threads' events are decoded one thread after the
 * other, so marks come out of order by some milliseconds: a mark looks for its place from the end.
 *
 *   pre 100, post 50      mark 1000         -> [900, 1050]
 *                         mark 1040         -> [900, 1090]            the same window
 *                         mark 1500         -> [900, 1090] [1400, 1550]
 *                         mark 1200 (late)  -> [900, 1090] [1100, 1250] [1400, 1550]
 *                         mark 1190         -> [900, 1250] [1400, 1550]   both of its neighbours overlap: one
 *
 * The limit counts windows that were opened in the last minute, by the times of their marks: minutes begin with the
 * first window after the one before is over.
 */
#include "drain/windows.h"

#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ct_windows {
  pthread_mutex_t lock;
  struct ct_windows_limits limits;
  struct ct_marked_window *list;
  size_t count, capacity;
  uint64_t minute_begin; /* of the first window that counts for the limit */
  uint32_t in_minute;
  uint64_t marks, refused, refused_size;
  uint64_t detail_bytes, dump_bytes;
};

int
ct_windows_create(const struct ct_windows_limits *limits, struct ct_windows **out)
{
  struct ct_windows *windows = calloc(1, sizeof(*windows));
  if (windows == NULL) {
    return CT_ENOMEM;
  }
  pthread_mutex_init(&windows->lock, NULL);
  windows->limits = *limits;
  *out = windows;
  return 0;
}

void
ct_windows_destroy(struct ct_windows *windows)
{
  if (windows == NULL) {
    return;
  }
  pthread_mutex_destroy(&windows->lock);
  free(windows->list);
  free(windows);
}

static bool
has_rule(const struct ct_marked_window *window, uint32_t count, uint32_t rule)
{
  bool has = false;
  for (uint32_t i = 0; i < count && !has; i++) {
    has = window->reasons[i].rule == rule;
  }
  return has;
}

/* Where several marks are of one rule, the last of these goes. */
static void
drop_repeated(struct ct_marked_window *window)
{
  uint32_t last = window->reason_count - 1;
  while (last != 0 && !has_rule(window, last, window->reasons[last].rule)) {
    last--;
  }
  if (last != 0) {
    window->reason_count--;
    memmove(window->reasons + last, window->reasons + last + 1,
            (window->reason_count - last) * sizeof(*window->reasons));
  }
}

/* The first ones, and the first one of each rule. */
static void
add_reason(struct ct_marked_window *window, const struct ct_mark *mark)
{
  if (window->reason_count == CT_WINDOW_REASONS && !has_rule(window, CT_WINDOW_REASONS, mark->rule)) {
    drop_repeated(window);
  }
  if (window->reason_count < CT_WINDOW_REASONS) {
    window->reasons[window->reason_count++] = *mark;
  }
}

/* The window that comes next takes up this one. */
static void
merge(struct ct_marked_window *window, const struct ct_marked_window *next)
{
  window->end = next->end > window->end ? next->end : window->end;
  window->marks += next->marks;
  window->least_end = next->least_end > window->least_end ? next->least_end : window->least_end;
  window->open_count += next->open_count;
  for (uint32_t i = 0; i < next->reason_count; i++) {
    add_reason(window, &next->reasons[i]);
  }
}

static void
remove_at(struct ct_windows *windows, size_t at)
{
  windows->count--;
  memmove(windows->list + at, windows->list + at + 1, (windows->count - at) * sizeof(*windows->list));
}

static bool
is_full(const struct ct_windows *windows)
{
  return windows->limits.bytes != 0 && windows->detail_bytes + windows->dump_bytes >= windows->limits.bytes;
}

/* May one more be opened at this time? */
static bool
take_from_limit(struct ct_windows *windows, uint64_t tsc)
{
  if (is_full(windows)) {
    windows->refused_size++;
    return false;
  }
  if (windows->in_minute == 0 ||
      (tsc > windows->minute_begin && tsc - windows->minute_begin >= windows->limits.minute)) {
    windows->minute_begin = tsc;
    windows->in_minute = 0;
  }
  if (windows->in_minute >= windows->limits.per_minute || windows->count >= CT_WINDOWS_MAX) {
    return false;
  }
  windows->in_minute++;
  return true;
}

/* Room for a new one at this place. */
static struct ct_marked_window *
insert_at(struct ct_windows *windows, size_t at)
{
  if (windows->count == windows->capacity) {
    size_t capacity = windows->capacity != 0 ? windows->capacity * 2 : 16;
    struct ct_marked_window *list = realloc(windows->list, capacity * sizeof(*list));
    if (list == NULL) {
      return NULL;
    }
    windows->list = list;
    windows->capacity = capacity;
  }
  memmove(windows->list + at + 1, windows->list + at, (windows->count - at) * sizeof(*windows->list));
  windows->count++;
  return &windows->list[at];
}

static bool
add_mark(struct ct_windows *windows, const struct ct_mark *mark)
{
  const struct ct_windows_limits *limits = &windows->limits;
  uint64_t pre = mark->begin_tsc != 0 ? limits->most : limits->pre;
  uint64_t post = mark->is_open ? limits->most : limits->post;
  uint64_t begin = mark->tsc > pre ? mark->tsc - pre : 0;
  begin = mark->begin_tsc > begin ? mark->begin_tsc : begin;
  uint64_t end = mark->tsc <= UINT64_MAX - post ? mark->tsc + post : UINT64_MAX;
  size_t at = windows->count; /* the first one that is all after it */
  while (at > 0 && windows->list[at - 1].begin > end) {
    at--;
  }
  struct ct_marked_window *window = at > 0 ? &windows->list[at - 1] : NULL;
  if (window == NULL || window->end < begin) {
    if (!take_from_limit(windows, mark->tsc) || (window = insert_at(windows, at)) == NULL) {
      return false;
    }
    *window = (struct ct_marked_window){.begin = begin,
                                        .end = end,
                                        .marks = 1,
                                        .open_count = mark->is_open,
                                        .least_end = mark->is_open ? mark->tsc : end};
    add_reason(window, mark);
    return true;
  }
  at--;
  window->begin = begin < window->begin ? begin : window->begin;
  window->end = end > window->end ? end : window->end;
  window->marks++;
  window->open_count += mark->is_open;
  uint64_t least = mark->is_open ? mark->tsc : end;
  window->least_end = least > window->least_end ? least : window->least_end;
  add_reason(window, mark);
  while (at > 0 && windows->list[at - 1].end >= windows->list[at].begin) {
    merge(&windows->list[at - 1], &windows->list[at]);
    remove_at(windows, at);
    at--;
  }
  return true;
}

bool
ct_windows_mark(struct ct_windows *windows, const struct ct_mark *mark)
{
  pthread_mutex_lock(&windows->lock);
  bool is_taken = add_mark(windows, mark);
  windows->marks += is_taken;
  windows->refused += !is_taken;
  pthread_mutex_unlock(&windows->lock);
  return is_taken;
}

/* The first one that ends at from_tsc or later, if it begins by to_tsc; NULL: there is none. */
static struct ct_marked_window *
find(const struct ct_windows *windows, uint64_t from_tsc, uint64_t to_tsc)
{
  size_t low = 0, high = windows->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (windows->list[middle].end < from_tsc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < windows->count && windows->list[low].begin <= to_tsc ? &windows->list[low] : NULL;
}

/* The mark among those that its window tells of; NULL: it is not one of them. */
static struct ct_mark *
find_told(const struct ct_windows *windows, const struct ct_mark *mark)
{
  struct ct_marked_window *window = find(windows, mark->tsc, mark->tsc);
  struct ct_mark *found = NULL;
  for (uint32_t i = 0; window != NULL && i < window->reason_count; i++) {
    struct ct_mark *at = &window->reasons[i];
    bool is_it = at->tsc == mark->tsc && at->rule == mark->rule && at->thread == mark->thread &&
                 at->function == mark->function && at->call == 0;
    found = is_it ? at : found;
  }
  return found;
}

bool
ct_windows_tell_of(struct ct_windows *windows, const struct ct_mark *mark)
{
  pthread_mutex_lock(&windows->lock);
  bool tells = find_told(windows, mark) != NULL;
  pthread_mutex_unlock(&windows->lock);
  return tells;
}

void
ct_windows_tell_call(struct ct_windows *windows, const struct ct_mark *mark)
{
  pthread_mutex_lock(&windows->lock);
  struct ct_mark *found = find_told(windows, mark);
  if (found != NULL) {
    found->call = mark->call;
    found->call_tsc = mark->call_tsc;
    found->call_is = mark->call_is;
  }
  pthread_mutex_unlock(&windows->lock);
}

void
ct_windows_call_comes_late(struct ct_windows *windows, uint32_t function, uint64_t tsc, uint64_t calls)
{
  pthread_mutex_lock(&windows->lock);
  /* A window ends no earlier than its marks, and these are no earlier than the calls that they are about. */
  for (size_t at = windows->count; at > 0 && windows->list[at - 1].end > tsc; at--) {
    struct ct_marked_window *window = &windows->list[at - 1];
    for (uint32_t i = 0; i < window->reason_count; i++) {
      struct ct_mark *reason = &window->reasons[i];
      reason->call += reason->call != 0 && reason->function == function && reason->call_tsc > tsc ? calls : 0;
    }
  }
  pthread_mutex_unlock(&windows->lock);
}

void
ct_windows_close(struct ct_windows *windows, uint64_t mark_tsc, uint64_t end_tsc)
{
  pthread_mutex_lock(&windows->lock);
  struct ct_marked_window *window = find(windows, mark_tsc, mark_tsc);
  if (window != NULL && window->open_count != 0) {
    window->least_end = end_tsc > window->least_end ? end_tsc : window->least_end;
    window->open_count--;
    if (window->open_count == 0 && window->least_end < window->end) {
      window->end = window->least_end;
    }
  }
  pthread_mutex_unlock(&windows->lock);
}

void
ct_windows_begin_later(struct ct_windows *windows, uint64_t mark_tsc, uint64_t begin_tsc, uint64_t new_tsc)
{
  pthread_mutex_lock(&windows->lock);
  struct ct_marked_window *window = find(windows, mark_tsc, mark_tsc);
  if (window != NULL && window->begin == begin_tsc && new_tsc > begin_tsc && new_tsc <= mark_tsc) {
    window->begin = new_tsc < window->reasons[0].tsc ? new_tsc : window->reasons[0].tsc;
  }
  pthread_mutex_unlock(&windows->lock);
}

bool
ct_windows_covers(struct ct_windows *windows, uint64_t from_tsc, uint64_t to_tsc)
{
  pthread_mutex_lock(&windows->lock);
  bool covers = find(windows, from_tsc, to_tsc) != NULL;
  pthread_mutex_unlock(&windows->lock);
  return covers;
}

uint64_t
ct_windows_end_around(struct ct_windows *windows, uint64_t tsc)
{
  pthread_mutex_lock(&windows->lock);
  const struct ct_marked_window *window = find(windows, tsc, tsc);
  uint64_t end = window != NULL ? window->end : 0;
  pthread_mutex_unlock(&windows->lock);
  return end;
}

bool
ct_windows_may_cover(struct ct_windows *windows, uint64_t to_tsc, uint64_t now_tsc)
{
  uint64_t pre = windows->limits.pre_events != 0 ? windows->limits.most : windows->limits.pre;
  return to_tsc >= now_tsc || now_tsc - to_tsc <= pre;
}

size_t
ct_windows_get(struct ct_windows *windows, size_t first, struct ct_marked_window *out, size_t count)
{
  pthread_mutex_lock(&windows->lock);
  size_t left = first < windows->count ? windows->count - first : 0;
  count = count < left ? count : left;
  if (count != 0) {
    memcpy(out, windows->list + first, count * sizeof(*out));
  }
  pthread_mutex_unlock(&windows->lock);
  return count;
}

void
ct_windows_note_detail(struct ct_windows *windows, uint64_t bytes)
{
  pthread_mutex_lock(&windows->lock);
  windows->detail_bytes = bytes;
  pthread_mutex_unlock(&windows->lock);
}

void
ct_windows_note_dump(struct ct_windows *windows, uint64_t bytes)
{
  pthread_mutex_lock(&windows->lock);
  windows->dump_bytes += bytes;
  pthread_mutex_unlock(&windows->lock);
}

bool
ct_windows_are_full(struct ct_windows *windows)
{
  pthread_mutex_lock(&windows->lock);
  bool full = is_full(windows);
  pthread_mutex_unlock(&windows->lock);
  return full;
}

const struct ct_windows_limits *
ct_windows_limits(const struct ct_windows *windows)
{
  return &windows->limits;
}

void
ct_windows_sums(struct ct_windows *windows, struct ct_windows_sums *sums)
{
  pthread_mutex_lock(&windows->lock);
  *sums = (struct ct_windows_sums){.windows = windows->count,
                                   .marks = windows->marks,
                                   .refused = windows->refused,
                                   .refused_size = windows->refused_size,
                                   .bytes = windows->detail_bytes + windows->dump_bytes};
  pthread_mutex_unlock(&windows->lock);
}
