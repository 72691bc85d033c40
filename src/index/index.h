/* SPDX-License-Identifier: MIT */
/*
 * The index of a trace's spans: what lets a question be answered by reading a few blocks in place of all. It is never
 * needed for a right answer: it is made of the trace, and made again where it does not fit.
 *
 * A thread's stream is cut at blocks into granules: as many blocks each as what is kept of the granule is about 2 % of,
 * 16 at most. Of a granule there are: where it begins and what the builder of spans knew there (span/spans.h), how many
 * spans ended in it, the least and greatest depth and the longest duration of those, and how long the longest one of
 * each function is. Spans that begin in one granule and end in a later one are in a list by ordinal; its longest ones,
 * 10 µs or more, are there whole. Of the trace: the statistics of each function; of each thread its calling context
 * tree (span/tree.h), or if that is too large its sums (span/tree_sums.h), or what each caller's calls of each function
 * took.
 *
 * The file, spans.cti in the trace's directory, has these as they lie in memory (docs/format.md). Times are those of
 * CT_TIME_WALL.
 *
 * While a recording goes on the index grows with it. What is after the last whole granule is read each time it is
 * opened, and is not written: its calls that are open may end otherwise.
 *
 * Threads: an index may be used by several at once after it was opened; a scan is of one thread at a time.
 */
#ifndef CT_INDEX_INDEX_H
#define CT_INDEX_INDEX_H

#include "span/spans.h"
#include "span/stats.h"
#include "span/tree_sums.h"

struct ct_index; /* opaque */

/*
 * Opens the index of a trace that stays open as long: from its file where that fits, else (or what is missing of it)
 * from the trace, with progress. A file is written when the trace has at least CT_INDEX_FILE_EVENTS events and the
 * directory can be written to. workers: threads to read with. *out goes to ct_index_close. CT_ENOMEM, CT_EIO.
 */
#define CT_INDEX_FILE_EVENTS 100000u
int ct_index_open(struct ct_trace *trace, unsigned workers, const struct ct_view_progress *progress,
                  struct ct_index **out, struct ct_diag *diag);
/*
 * The same where there is a file that fits; what the trace has grown by since is read. CT_ENOENT: there is none, and
 * diag is not touched. For who gains by an index, but not by making one.
 */
int ct_index_open_present(struct ct_trace *trace, unsigned workers, const struct ct_view_progress *progress,
                          struct ct_index **out, struct ct_diag *diag);
/*
 * The same for who asks for statistics and the sums of threads, and for nothing else: of a file that has all of the
 * trace, no more is read.
 */
int ct_index_open_sums(struct ct_trace *trace, unsigned workers, const struct ct_view_progress *progress,
                       struct ct_index **out, struct ct_diag *diag);
/*
 * For who asks for statistics with self times (span/selves.h), edges, and the sums of threads, and for nothing else, of
 * a trace that is complete and has no range. A file that does not have them, since nobody has asked for them so far, is
 * made anew. CT_ENOMEM, CT_ECANCELED, CT_EIO.
 */
int ct_index_open_selves(struct ct_trace *trace, unsigned workers, const struct ct_view_progress *progress,
                         struct ct_index **out, struct ct_diag *diag);
/*
 * The same for who asks for calling context trees and the sums of threads, and for nothing else. makes: where there is
 * no file and one would stay, it is made.
 */
int ct_index_open_trees(struct ct_trace *trace, bool makes, unsigned workers, const struct ct_view_progress *progress,
                        struct ct_index **out, struct ct_diag *diag);
/*
 * The same where the file has all of the trace, which is complete: nothing is read but the file. It is the index of the
 * whole trace, whatever range that has.
 */
int ct_index_open_whole(struct ct_trace *trace, struct ct_index **out, struct ct_diag *diag);
/*
 * Gives the trace the places that its index knows, where there is one of all of it, so that a range of it is found
 * sooner (ct_trace_set_places), and what is open at the last of them before the range that it has (ct_trace_set_past).
 * Of the file no more is read than that takes. CT_ENOMEM.
 */
int ct_index_give_places(struct ct_trace *trace);
/*
 * Likewise of a part of the trace: of threads that have a byte that is not 0 (NULL: of all), in the range that the
 * trace has (ct_trace_set_range). Its file has no part in that, but where it is the whole trace that is asked for.
 */
int ct_index_open_piece(struct ct_trace *trace, const uint8_t *threads, unsigned workers,
                        const struct ct_view_progress *progress, struct ct_index **out, struct ct_diag *diag);
void ct_index_close(struct ct_index *index); /* accepts NULL */

enum ct_index_origin {
  CT_INDEX_FROM_FILE = 0, /* all of it was there */
  CT_INDEX_EXTENDED = 1,  /* the trace had grown */
  CT_INDEX_BUILT = 2,     /* there was none */
  CT_INDEX_REBUILT = 3,   /* there was one that did not fit the trace, or was damaged */
};
enum ct_index_origin ct_index_origin(const struct ct_index *index);
uint64_t ct_index_bytes(const struct ct_index *index); /* of its file, as it is or would be */

/* Of the whole trace. Borrowed. */
const struct ct_stats *ct_index_stats(const struct ct_index *index);

/* The calls of one function that came from one other: durations added up, so that recursion counts again. */
struct ct_index_edge {
  uint32_t caller; /* UINT32_MAX: they have no caller on their stack */
  uint32_t fn;
  uint64_t calls, total_ticks, self_ticks;
};
/* How many; -1: out of memory, or the file of the index is damaged. */
int64_t ct_index_edges(struct ct_index *index, const struct ct_index_edge **edges);

/* Of one of the trace's threads, by its place in the list. */
struct ct_index_thread_sums {
  uint64_t spans; /* that have ended, points and all */
  uint64_t events, lost;
  uint64_t preempted_ticks; /* of an index with self times */
  bool is_damaged;          /* its file: what comes before that place is in the index */
};
void ct_index_thread_sums(const struct ct_index *index, uint32_t thread, struct ct_index_thread_sums *sums);

/* Of the thread's spans: the longest one, ticks; least and greatest depth. */
struct ct_index_extent {
  uint64_t longest;
  uint32_t least_depth, most_depth;
};
void ct_index_extent(const struct ct_index *index, uint32_t thread, struct ct_index_extent *extent);

/* The thread's calling context tree; *tree goes to ct_span_tree_destroy. CT_ENOENT: it has none; CT_ENOMEM, CT_EFORMAT.
 */
int ct_index_tree(const struct ct_index *index, uint32_t thread, struct ct_span_tree *tree);
/* Where that is too large to be kept, its sums: *sums goes to ct_tree_sums_destroy. Likewise. */
int ct_index_tree_sums(const struct ct_index *index, uint32_t thread, struct ct_tree_sums *sums);

/*
 * For who reads a piece of the trace and shows a call of it as the whole does: the clock right after the call was
 * entered. CT_ENOENT: it is not known.
 */
int ct_index_clock_at(const struct ct_index *index, uint32_t thread, uint64_t ordinal, struct ct_span_clock *clock);

/*
 * For who shows some functions' calls with what is inside of them, and passes over what has none of that. functions: as
 * in struct ct_scan_filter. *wanted, to be freed, has a byte for each granule of the thread, *count of them. It is 0
 * where none of their calls began, ended or was open, and nothing else is that replay shows whatever it is asked for.
 * CT_ENOMEM, CT_EFORMAT.
 */
int ct_index_granules_of(const struct ct_index *index, uint32_t thread, const uint8_t *functions, uint8_t **wanted,
                         size_t *count);
/*
 * Likewise for who shows single ends of calls, losses, or what happened at a moment, and nothing else: not 0 where one
 * of these is, and in the granule before that, so that a call that begins and ends at the border is seen whole.
 */
struct ct_granules_asked {
  uint64_t least_ns;       /* ends of calls that took so long; 0: none */
  bool unfinished;         /* of calls that are not over (ct_span_is_unfinished) */
  bool marks;              /* losses, execs, changes of the sampling */
  const uint64_t *moments; /* ascending */
  size_t moment_count;
};
int ct_index_granules_with(const struct ct_index *index, uint32_t thread, const struct ct_granules_asked *asked,
                           uint8_t **wanted, size_t *count);
/* Where a granule begins, and what the builder of spans knew there: for ct_span_state_take. */
struct ct_index_place {
  uint64_t offset; /* of its first block */
  uint64_t first_tsc, first_ordinal;
  const uint8_t *state; /* none of the first one */
  size_t state_bytes;
};
void ct_index_place(const struct ct_index *index, uint32_t thread, size_t granule, struct ct_index_place *place);

/*
 * The spans that fulfil all conditions, thread after thread, in the order of their ends, or some of them, the longest
 * ones first.
 */
enum ct_scan_order {
  CT_SCAN_LONGEST = 0, /* points last */
  CT_SCAN_FIRST_BEGUN, /* by their begins, the first one first; */
  CT_SCAN_LAST_BEGUN,  /* the last one first */
  CT_SCAN_FIRST_ENDED,
  CT_SCAN_LAST_ENDED,
};
struct ct_scan_filter {
  bool has_thread, has_id, has_parent;
  uint32_t thread;               /* place in the list */
  const uint8_t *threads;        /* a byte for each thread, 0: not these; NULL: all */
  uint64_t ordinal;              /* has_id: this one of that thread */
  uint64_t parent_ordinal;       /* has_parent: these inside that one, of that thread; CT_NO_ORDINAL: those in none */
  const uint8_t *functions;      /* a byte for each function (and one for all other ids), 0: not these; NULL: all */
  uint64_t start_from, start_to; /* clock readings; 0 and UINT64_MAX: any */
  uint64_t end_from;
  uint64_t least_ticks, most_ticks; /* of duration */
  uint32_t least_depth, most_depth;
  uint64_t longest; /* 0: all, in the order of their ends; else only so many, the longest ones, those first, or: */
  enum ct_scan_order order;    /* what comes first, of so many */
  bool with_others;            /* ORPHAN and COUNTED too */
  bool no_points;              /* calls that have an end only */
  struct ct_scan_cache *cache; /* NULL: none */
  bool unfinished;             /* those only that are not over: open at the end, or their return was not seen */
};
#define CT_SCAN_FILTER_ALL                                                                                             \
  (struct ct_scan_filter)                                                                                              \
  {                                                                                                                    \
    .start_to = UINT64_MAX, .most_ticks = UINT64_MAX, .most_depth = UINT32_MAX                                         \
  }

/* For who looks for calls by id, or by the id of their parent, again and again: what was read is kept, of all indexes
 * that it is given for, which it must not outlive. Of one thread. most: so many spans, of 112 bytes; 0: 400,000. */
struct ct_scan_cache;                                          /* opaque */
struct ct_scan_cache *ct_scan_cache_create(size_t most);       /* NULL: out of memory */
void ct_scan_cache_destroy(struct ct_scan_cache *cache);       /* accepts NULL; after the scans */
size_t ct_scan_cache_spans(const struct ct_scan_cache *cache); /* for which it has memory */

struct ct_index_scan; /* opaque */
int ct_scan_open(struct ct_index *index, const struct ct_scan_filter *filter, struct ct_index_scan **out,
                 struct ct_diag *diag);
void ct_scan_close(struct ct_index_scan *scan); /* accepts NULL */
/* 0 and *span, NULL at the end, valid until the next call; CT_ENOMEM, CT_EFORMAT. */
int ct_scan_next(struct ct_index_scan *scan, const struct ct_span **span);
/* How many blocks were read for it so far. */
uint64_t ct_scan_blocks(const struct ct_index_scan *scan);

/*
 * begun.c: how many spans of a thread began at these readings of the clock, from .. to. is_exact: what granules have
 * counted are spans and nothing else; where they have not, or where it is not known what they are, all are read.
 * is_over: asked now and then, NULL: never. 0, CT_ECANCELED, CT_ENOMEM, CT_EFORMAT.
 */
int ct_index_count_begun(struct ct_index *index, uint32_t thread, uint64_t from, uint64_t to, bool is_exact,
                         bool (*is_over)(void *arg), void *arg, uint64_t *count);

#endif
