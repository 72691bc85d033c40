/* SPDX-License-Identifier: MIT */
/* Opening an index: from its file, from the trace, or from both; see index.h. */
#include "index/index_internal.h"

#include "base/test_point.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define AGAIN_SPANS 500000u

static void
forget_threads(struct ct_index *index)
{
  for (uint32_t i = 0; i < index->thread_count; i++) {
    ct_index_part_free(&index->threads[i].part);
    free(index->threads[i].end_state.data);
    free(index->threads[i].kept_tree.data);
    free(index->threads[i].tree.data);
    index->threads[i] = (struct ct_index_thread){0};
  }
  free(index->file);
  if (index->fd >= 0) {
    close(index->fd);
  }
  index->fd = -1;
  index->file = NULL;
  index->file_bytes = 0;
}

void
ct_index_close(struct ct_index *index)
{
  if (index == NULL) {
    return;
  }
  forget_threads(index);
  if (index->stats.fns != NULL) {
    ct_stats_destroy(&index->stats);
  }
  pthread_mutex_destroy(&index->lock);
  free(index->threads);
  free(index->edge_list);
  ct_edges_free(&index->edges);
  free(index);
}

/* What its file has, if that is about this trace as it is now. */
static int
load(struct ct_index *index, unsigned parts, struct ct_index_sums *kept)
{
  if (index->is_piece) {
    index->origin = CT_INDEX_BUILT;
    return 0;
  }
  struct ct_trace_kept bounds = {.struct_size = sizeof(bounds)};
  bool loses_oldest = !ct_trace_is_complete(index->trace) && ct_trace_get_kept(index->trace, &bounds) == 0 &&
                      bounds.is_kept; /* what it was made of goes: it need not fit for long */
  int code = ct_index_load(index, parts, kept);
  index->origin = code == 0                           ? CT_INDEX_FROM_FILE
                  : code == CT_ENOENT || loses_oldest ? CT_INDEX_BUILT
                                                      : CT_INDEX_REBUILT;
  if (code != 0) {
    forget_threads(index);
    ct_index_sums_free(kept);
    return code == CT_ENOMEM ? code : ct_index_sums_init(kept, index->trace);
  }
  return 0;
}

static bool
is_all_there(const struct ct_index *index)
{
  for (uint32_t i = 0; i < index->thread_count; i++) {
    if (!index->threads[i].is_whole && !index->threads[i].is_out) {
      return false;
    }
  }
  return true;
}

/* Of a trace of fewer events no file is written. */
static uint64_t
least_events(void)
{
  return ct_test_number("CONTRAIL_TEST_INDEX_EVENTS", CT_INDEX_FILE_EVENTS);
}

/* What is for good: does it say more than the file, and is it worth one? */
static bool
is_worth_writing(const struct ct_index *index, uint64_t kept_before)
{
  uint64_t events = 0, kept = 0;
  if (!ct_trace_is_complete(index->trace) && !ct_trace_knows_modules(index->trace)) {
    return false; /* sums by module could not be gone on from (number_groups, span/tree_sums.c) */
  }
  for (uint32_t i = 0; i < index->thread_count; i++) {
    if (index->threads[i].is_damaged && !index->threads[i].is_whole) {
      return false; /* what is not for good went into the sums */
    }
    events += index->threads[i].events;
    kept += index->threads[i].kept_spans;
  }
  uint64_t more = kept - kept_before; /* reading them again would take longer than writing it does */
  bool is_much = more > kept_before / 16 || more > kept_before / 256 + AGAIN_SPANS;
  return events >= least_events() && (is_all_there(index) || is_much);
}

static uint64_t
kept_spans(const struct ct_index *index)
{
  uint64_t kept = 0;
  for (uint32_t i = 0; i < index->thread_count; i++) {
    kept += index->threads[i].kept_spans;
  }
  return kept;
}

enum want { WHATEVER_IS_NEEDED, SELVES, TREES, IF_PRESENT, SUMS_IF_PRESENT, TREES_IF_PRESENT };

/* What is missing of it is read, and written where that is worth it. */
static int
extend(struct ct_index *index, enum want want, unsigned workers, const struct ct_view_progress *progress,
       struct ct_index_sums *kept, struct ct_diag *diag)
{
  struct ct_index_sums tail;
  uint64_t before = kept_spans(index);
  if (ct_index_sums_init(&tail, index->trace) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the index of the trace");
  }
  index->keeps_selves =
      want == SELVES && index->origin != CT_INDEX_FROM_FILE && !index->is_piece && ct_trace_is_complete(index->trace);
  int code = index->keeps_selves && ct_stats_keep_selves(&kept->stats) != 0
                 ? ct_fail(diag, CT_ENOMEM, "out of memory for the index of the trace")
                 : ct_index_build(index, workers, progress, kept, &tail, diag);
  if (code != 0) {
    goto free_tail;
  }
  if (index->origin == CT_INDEX_FROM_FILE) {
    index->origin = CT_INDEX_EXTENDED;
  }
  if (!index->is_piece && is_worth_writing(index, before)) {
    ct_index_store(index, kept);
  }
  if (ct_stats_merge(&kept->stats, &tail.stats) != 0 || ct_edges_merge(&kept->edges, &tail.edges) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the index of the trace");
  }
free_tail:
  ct_index_sums_free(&tail);
  return code;
}

/* There is enough for a file, and it can be written. */
static bool
would_stay(const struct ct_index *index)
{
  uint64_t events = 0;
  for (uint32_t i = 0; i < index->thread_count; i++) {
    events += ct_trace_thread(index->trace, i)->events;
  }
  return !index->is_piece && events >= least_events() &&
         faccessat(ct_trace_dir_fd(index->trace), ".", W_OK, AT_EACCESS) == 0;
}

/* These alone, where they have all that is wanted; else all that can be gone on from. */
static int
load_some(struct ct_index *index, unsigned parts, enum want want, struct ct_index_sums *kept)
{
  int code = load(index, parts, kept);
  bool has_selves = code == 0 && (want != SELVES || kept->stats.selves != NULL);
  if (code != 0 || index->origin != CT_INDEX_FROM_FILE || (is_all_there(index) && has_selves)) {
    return code;
  }
  forget_threads(index);
  ct_index_sums_free(kept);
  code = ct_index_sums_init(kept, index->trace);
  index->origin = CT_INDEX_BUILT; /* what is missing of self times is not known where the lists end */
  return code == 0 && want != SELVES ? load(index, CT_INDEX_ALL, kept) : code;
}

static int
complete(struct ct_index *index, enum want want, unsigned workers, const struct ct_view_progress *progress,
         struct ct_diag *diag)
{
  struct ct_index_sums kept;
  unsigned parts = want == SUMS_IF_PRESENT                     ? CT_INDEX_SUMS
                   : want == SELVES                            ? CT_INDEX_SUMS | CT_INDEX_SELVES | CT_INDEX_TREES
                   : want == TREES || want == TREES_IF_PRESENT ? CT_INDEX_TREES
                                                               : CT_INDEX_ALL;
  int code = ct_index_sums_init(&kept, index->trace);
  if (code == 0 && parts != CT_INDEX_ALL) {
    code = load_some(index, parts, want, &kept);
  } else if (code == 0) {
    code = load(index, CT_INDEX_ALL, &kept);
  }
  if (code != 0) {
    ct_fail(diag, code, "out of memory for the index of the trace");
    goto free_kept;
  }
  bool makes = want < IF_PRESENT && (want != TREES || would_stay(index));
  if (!makes && index->origin != CT_INDEX_FROM_FILE) {
    code = CT_ENOENT;
    goto free_kept;
  }
  if (!is_all_there(index) && (code = ct_index_fetch_all(index)) != 0) {
    ct_fail(diag, code, "the index of the trace has changed");
    goto free_kept;
  }
  if (!is_all_there(index) && (code = extend(index, want, workers, progress, &kept, diag)) != 0) {
    goto free_kept;
  }
  index->edges = kept.edges;
  kept.edges = (struct ct_edge_table){0};
  index->stats = kept.stats;
  kept.stats = (struct ct_stats){0};
free_kept:
  ct_index_sums_free(&kept);
  return code;
}

/* An index of nothing yet. */
static struct ct_index *
new_index(struct ct_trace *trace)
{
  struct ct_index *index = calloc(1, sizeof(*index));
  uint32_t count = ct_trace_thread_count(trace);
  if (index != NULL) {
    index->threads = calloc((size_t)count + 1, sizeof(*index->threads));
  }
  if (index == NULL || index->threads == NULL) {
    free(index);
    return NULL;
  }
  index->trace = trace;
  index->thread_count = count;
  index->fd = -1;
  pthread_mutex_init(&index->lock, NULL);
  return index;
}

static int
open_index(struct ct_trace *trace, const uint8_t *threads, enum want want, unsigned workers,
           const struct ct_view_progress *progress, struct ct_index **out, struct ct_diag *diag)
{
  struct ct_index *index = new_index(trace);
  if (index == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the index of the trace");
  }
  index->is_piece = threads != NULL || ct_trace_has_range(trace);
  for (uint32_t i = 0; i < index->thread_count; i++) {
    index->threads[i].is_out = threads != NULL && threads[i] == 0;
  }
  int code = complete(index, want, workers, progress, diag);
  if (code != 0) {
    ct_index_close(index);
    return code;
  }
  *out = index;
  return 0;
}

int
ct_index_open(struct ct_trace *trace, unsigned workers, const struct ct_view_progress *progress, struct ct_index **out,
              struct ct_diag *diag)
{
  return open_index(trace, NULL, WHATEVER_IS_NEEDED, workers, progress, out, diag);
}

int
ct_index_open_piece(struct ct_trace *trace, const uint8_t *threads, unsigned workers,
                    const struct ct_view_progress *progress, struct ct_index **out, struct ct_diag *diag)
{
  return open_index(trace, threads, WHATEVER_IS_NEEDED, workers, progress, out, diag);
}

int
ct_index_open_selves(struct ct_trace *trace, unsigned workers, const struct ct_view_progress *progress,
                     struct ct_index **out, struct ct_diag *diag)
{
  return open_index(trace, NULL, SELVES, workers, progress, out, diag);
}

int
ct_index_open_present(struct ct_trace *trace, unsigned workers, const struct ct_view_progress *progress,
                      struct ct_index **out, struct ct_diag *diag)
{
  return open_index(trace, NULL, IF_PRESENT, workers, progress, out, diag);
}

int
ct_index_open_sums(struct ct_trace *trace, unsigned workers, const struct ct_view_progress *progress,
                   struct ct_index **out, struct ct_diag *diag)
{
  return open_index(trace, NULL, SUMS_IF_PRESENT, workers, progress, out, diag);
}

int
ct_index_open_trees(struct ct_trace *trace, bool makes, unsigned workers, const struct ct_view_progress *progress,
                    struct ct_index **out, struct ct_diag *diag)
{
  return open_index(trace, NULL, makes ? TREES : TREES_IF_PRESENT, workers, progress, out, diag);
}

int
ct_index_open_whole(struct ct_trace *trace, struct ct_index **out, struct ct_diag *diag)
{
  struct ct_index *index = new_index(trace);
  struct ct_index_sums kept;
  if (index == NULL || ct_index_sums_init(&kept, trace) != 0) {
    ct_index_close(index);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the index of the trace");
  }
  int code = ct_index_load(index, CT_INDEX_ALL, &kept);
  if (code != 0) {
    goto free_sums;
  }
  code = ct_index_fetch_all(index);
  if (code != 0) {
    goto free_sums;
  }
  if (!is_all_there(index)) {
    code = CT_ENOENT;
    goto free_sums;
  }
  index->stats = kept.stats;
  kept.stats = (struct ct_stats){0};
free_sums:
  ct_index_sums_free(&kept);
  if (code != 0) {
    ct_index_close(index);
    return code == CT_ENOMEM ? ct_fail(diag, code, "out of memory for the index of the trace") : CT_ENOENT;
  }
  *out = index;
  return 0;
}

/* Of one thread. from_tsc: where the range begins; 0: it has no begin. 0 or CT_ENOMEM. */
static int
give_places(const struct ct_index *index, uint32_t number, uint64_t from_tsc)
{
  const struct ct_index_part *part = &index->threads[number].part;
  struct ct_trace_place *places = malloc((part->granule_count + 1) * sizeof(*places));
  for (uint64_t i = 1; places != NULL && i < part->granule_count; i++) {
    uint64_t last = part->granules[i - 1].last_tsc, before = i > 1 ? places[i - 2].before_tsc : 0;
    places[i - 1] = (struct ct_trace_place){part->granules[i].offset, last > before ? last : before};
  }
  int code = places == NULL            ? CT_ENOMEM
             : part->granule_count < 2 ? 0
                                       : ct_trace_set_places(index->trace, number, places, part->granule_count - 1);
  free(places);
  return code == 0 && from_tsc != 0 ? ct_index_give_past(index, number, from_tsc) : code;
}

int
ct_index_give_places(struct ct_trace *trace)
{
  struct ct_index *index = ct_trace_is_complete(trace) && !ct_trace_is_atf(trace) ? new_index(trace) : NULL;
  if (index == NULL) {
    return 0; /* it is found without */
  }
  uint64_t from = 0, to;
  ct_trace_range(trace, &from, &to);
  int code = ct_index_load(index, CT_INDEX_LISTS | (from != 0 ? CT_INDEX_BLOBS : 0), NULL);
  bool is_usable = code == 0 && is_all_there(index);
  code = code == CT_ENOMEM ? code : 0;
  for (uint32_t i = 0; i < index->thread_count && is_usable && code == 0; i++) {
    code = index->threads[i].is_damaged ? 0 : give_places(index, i, from);
  }
  ct_index_close(index);
  return code;
}

enum ct_index_origin
ct_index_origin(const struct ct_index *index)
{
  return index->origin;
}

uint64_t
ct_index_bytes(const struct ct_index *index)
{
  return index->file_bytes;
}

const struct ct_stats *
ct_index_stats(const struct ct_index *index)
{
  return &index->stats;
}

/* Most questions are about something else, and of many paths they take a while. */
int64_t
ct_index_edges(struct ct_index *index, const struct ct_index_edge **edges)
{
  int code = 0;
  pthread_mutex_lock(&index->lock);
  if (!index->has_edges) {
    code = ct_trees_add_edges(index, &index->edges);
    code = code == 0 ? ct_edges_list(&index->edges, &index->edge_list, &index->edge_count) : code;
    ct_edges_free(&index->edges);
    index->has_edges = true;
  }
  *edges = index->edge_list;
  pthread_mutex_unlock(&index->lock);
  return *edges != NULL ? (int64_t)index->edge_count : -1;
}

void
ct_index_thread_sums(const struct ct_index *index, uint32_t thread, struct ct_index_thread_sums *sums)
{
  const struct ct_index_thread *t = &index->threads[thread];
  *sums = (struct ct_index_thread_sums){t->spans, t->events, t->lost, t->preempted, t->is_damaged};
}
