/* SPDX-License-Identifier: MIT */
/*
 * contrail tui: a trace as a screen of four panes. What the panes are made of, each a file of its own:
 *
 *   data     functions and who called whom, by SQL out of the trace's index; single questions about calls
 *   paths    the tree of paths, read by a thread of its own
 *   graph    a tree that is folded: of the paths, or of who called whom
 *   replay   a window of lines of the replay, that is extended at both ends as the bar moves
 *   source   the file that a function is written in
 *
 * Only the paths need the trace as a whole, and nobody waits for them: functions and edges are sums that the index has,
 * a page of the replay begins where the index says, and a call is looked for in stretches of time that grow.
 */
#ifndef CT_CLI_TUI_H
#define CT_CLI_TUI_H

#include "cli/view.h"

#include <contrail/replay.h>
#include <contrail/sql.h>
#include <contrail/trace.h>

#include <jansson.h>

/* ---- data ---- */

#define TUI_NO_FUNCTION (-1)
#define TUI_NOT_KNOWN   (-1)

struct tui_function {
  int64_t id;
  const char *name, *module, *file; /* of the rows; file NULL: not known */
  uint32_t line;
  int64_t calls, total, self, p50, p99, max; /* times: TUI_NOT_KNOWN */
};

struct tui_edge {
  int64_t caller, callee; /* TUI_NO_FUNCTION: no caller is on the stack */
  int64_t calls, total, self;
};

struct tui_data {
  char *name; /* of the trace, with the piece and the thread */
  struct ct_sql *sql;
  json_t *rows; /* of the functions, whose texts are in it */
  struct tui_function *functions;
  size_t function_count; /* those that were called, by id */
  struct tui_edge *edges;
  size_t edge_count, *by_callee; /* edges by caller; their numbers by callee */
  int64_t events;
  bool index_rebuilt;
};

/* Reads what the trace has now: in place of what there was, or leaves that as it was. limit: functions from that id on
 * are of other processes. */
int tui_data_read(struct tui_data *data, const char *name, uint32_t limit, const struct ct_view_progress *progress,
                  struct ct_diag *diag);
void tui_data_free(struct tui_data *data);
/* The rows of a query; NULL after an error, or when it was interrupted. */
json_t *tui_data_ask(struct tui_data *data, struct ct_diag *diag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A number of a row, which is text when it is large; TUI_NOT_KNOWN for NULL. */
int64_t tui_number(const json_t *row, size_t column);
const struct tui_function *tui_data_function(const struct tui_data *data, int64_t id);
/* Of the lines of replay, which have no ids of functions. NULL: it is not among those that were called. */
const struct tui_function *tui_data_named(const struct tui_data *data, const char *name, const char *module);
/* Where the edges of a caller begin; those of it come one after another. Likewise by_callee. */
size_t tui_edges_of_caller(const struct tui_data *data, int64_t caller);
size_t tui_edges_of_callee(const struct tui_data *data, int64_t callee);
struct tui_call {
  int64_t id, start, end;
};
/* The longest call of a function; false: there is none, or diag has a line. */
bool tui_data_longest(struct tui_data *data, int64_t function, struct tui_call *call, struct ct_diag *diag);
/* The next call that begins after ns (forward), or the last one before, of these functions. until: where to stop. */
bool tui_data_find(struct tui_data *data, const int64_t *functions, size_t count, int64_t ns, int64_t until,
                   bool forward, struct tui_call *call, struct ct_diag *diag);
/* When the call ends; TUI_NOT_KNOWN. */
int64_t tui_data_end_of(struct tui_data *data, int64_t id);

/* ---- paths ---- */

/* Those below a path come right after it, up to its end. */
struct tui_path {
  int64_t function;
  const char *label; /* of one that is of no function; NULL: it is of one, or of others */
  int64_t calls, recursive, total, self;
  size_t others; /* it stands for so many thin ones; 0: for itself */
  size_t end;
};

struct tui_paths {
  struct tui_path *paths;
  size_t count;
  int64_t root; /* TUI_NO_FUNCTION: from the outermost calls */
  uint64_t folded;
  bool is_known;              /* of this root */
  uint64_t took_ms, ended_ms; /* the last reading, and when (CLOCK_MONOTONIC) */
  struct tui_paths_job *job;  /* that is under way; NULL: none */
};

/* Begins to read those of the trace, from a function down or from the outermost calls (NULL). */
void tui_paths_start(struct tui_paths *paths, const char *directory, const struct ct_filter *filter,
                     const struct tui_function *root);
/* They were read so lately that it would take too much of the machine to read them again. */
bool tui_paths_are_fresh(const struct tui_paths *paths);
/* Some are being read: from where, and how far that is. */
bool tui_paths_are_read(const struct tui_paths *paths, int64_t *root, unsigned *percent);
/* Takes them when they have been read, or are in that time. True: they are other ones than before. */
bool tui_paths_take(struct tui_paths *paths, const struct tui_data *data, int wait_ms, struct ct_diag *diag);
void tui_paths_free(struct tui_paths *paths); /* ends the reading */

/* ---- graph ---- */

struct tui_node {
  int64_t function;
  int64_t calls, total, self;
  uint32_t level;
  int64_t recursive;                    /* so many of the calls, of a path */
  bool is_open, is_recursion, has_more; /* is_recursion: the function is above it, too */
  const char *label;                    /* of a path that is of no function */
  size_t path;                          /* which of the paths it is */
  size_t others;                        /* a line that stands for so many more; 0: none */
  size_t origin;                        /* while it is renewed: the node of before, from 1; 0: there was none */
};

struct tui_graph {
  struct tui_node *nodes;
  size_t count, capacity;
  int64_t root;  /* TUI_NO_FUNCTION: the outermost functions */
  bool up;       /* callers below what they call */
  bool of_paths; /* else of edges */
  int64_t whole; /* of which totals are parts */
  size_t first, selected;
};

/* What it is made of. paths NULL: edges; it is of paths only where they are from its root down. */
struct tui_sums {
  const struct tui_data *data;
  const struct tui_paths *paths;
};

/* Makes it anew, with a part of it unfolded. CT_ENOMEM. */
int tui_graph_begin(struct tui_graph *graph, const struct tui_sums *sums, int64_t root, bool up);
/* The numbers of new sums, with what was unfolded and selected. CT_ENOMEM: as it was. */
int tui_graph_renew(struct tui_graph *graph, const struct tui_sums *sums);
int tui_graph_unfold(struct tui_graph *graph, const struct tui_sums *sums, size_t at);
void tui_graph_fold(struct tui_graph *graph, size_t at);
void tui_graph_free(struct tui_graph *graph);

/* ---- replay ---- */

enum tui_kind { TUI_ENTER, TUI_TAIL, TUI_POINT, TUI_END, TUI_OTHER };

struct tui_line {
  int64_t ns, duration; /* duration: TUI_NOT_KNOWN; of a page's TAIL that of the call that has ended */
  int64_t id;           /* 0: of no call */
  uint32_t tid, depth, stack;
  enum tui_kind kind;
  bool is_folded, has_inside;
  char *name, *module, *note; /* name: of the function, or NULL; note: what is said besides, or NULL */
  size_t own_note;            /* so much of it is of the call's begin ... */
  size_t arguments;           /* ... and so much the arguments */
};

struct tui_fold {
  uint32_t tid, stack, depth;
  int64_t id, end; /* end: TUI_NOT_KNOWN */
};

struct tui_lines {
  struct tui_line *lines;
  size_t count, capacity;
  struct tui_fold *folds; /* those that are open at the end */
  size_t fold_count;
};

struct tui_ids {
  int64_t *ids;
  size_t count;
};

struct tui_replay {
  struct ct_trace *trace;  /* of its own: pages are pieces of it */
  struct ct_filter filter; /* tids */
  int64_t from, to;        /* of the piece that is shown, ns */
  struct tui_lines window;
  size_t first, selected;
  bool is_at_begin, is_at_end;
  int64_t resume_ns, resume_id; /* the next page: what comes after this call's first line (0: from ns on) ... */
  size_t resume_skip;           /* ... without so many lines */
  uint32_t levels;              /* calls of this depth and deeper are folded; 0: none */
  struct tui_ids folded, unfolded;
  int64_t end_back; /* how long before the end a window began that had it; 0: not known */
  uint32_t one_tid; /* 0: all that the filter has */
  struct ct_view_notes notes;
  json_t *warnings; /* texts */
};

/* Opens the trace once more. The filter's texts are the caller's. */
int tui_replay_open(struct tui_replay *replay, const char *path, const struct ct_filter *filter, struct ct_diag *diag);
void tui_replay_free(struct tui_replay *replay);
/* The window begins there. */
int tui_replay_go(struct tui_replay *replay, struct tui_data *data, int64_t ns, struct ct_diag *diag);
int tui_replay_go_to_end(struct tui_replay *replay, struct tui_data *data, struct ct_diag *diag);
/* Puts the bar on a call's first line, which is made the window's begin when it is not in it. */
int tui_replay_show(struct tui_replay *replay, struct tui_data *data, const struct tui_call *call,
                    struct ct_diag *diag);
/* So many more lines at the end of the window, or before its begin, as far as there are any. */
int tui_replay_extend(struct tui_replay *replay, struct tui_data *data, size_t wanted, struct ct_diag *diag);
int tui_replay_extend_back(struct tui_replay *replay, size_t wanted, struct ct_diag *diag);
/* Of a trace that has grown: the end of the window anew, where calls were open. */
int tui_replay_reread(struct tui_replay *replay, struct tui_data *data, struct ct_diag *diag);
/* Folds the call of a line, or shows again what is in it. */
int tui_replay_fold(struct tui_replay *replay, struct tui_data *data, size_t at, bool fold, struct ct_diag *diag);
/* replay_page.c: one page. The lines that it reads. */
struct tui_page {
  struct tui_line *lines;
  bool *before; /* of each: the call was open where the page begins */
  size_t count;
  bool is_last;
};
int tui_page_read(struct tui_replay *replay, int64_t from, int64_t after, size_t limit, struct tui_page *page,
                  struct ct_diag *diag);
/* How many lines there are from then on, without those of frames that were open; is_last: fewer than the limit. */
bool tui_page_count(struct tui_replay *replay, int64_t from, size_t limit, size_t *count, bool *is_last,
                    struct ct_diag *diag);
void tui_page_free(struct tui_page *page); /* with the lines that were not taken */
void tui_line_free(struct tui_line *line);
bool tui_lines_add(struct tui_lines *lines, struct tui_line *line);

/* ---- source ---- */

enum { TUI_SOURCE_BYTES = 16 << 20 };

struct tui_source {
  char *file; /* as the trace names it; NULL: nothing is shown */
  char *path; /* where it was found */
  char *text; /* NULL: said has the reason */
  char **lines;
  size_t count;
  char said[256];
};

/* Takes the file up, if it is another; folders: where to look for files that are not where the trace says. */
void tui_source_take(struct tui_source *source, const char *file, char *const *folders, size_t folder_count);
void tui_source_free(struct tui_source *source);

/* ---- the command ---- */

enum tui_sort {
  TUI_SORT_TOTAL,
  TUI_SORT_SELF,
  TUI_SORT_CALLS,
  TUI_SORT_P50,
  TUI_SORT_P99,
  TUI_SORT_MAX,
  TUI_SORT_NAME,
  TUI_SORTS,
};

enum tui_pane { TUI_REPORT, TUI_GRAPH, TUI_REPLAY, TUI_SOURCE, TUI_PANES };

struct tui {
  const struct ct_command *command;
  struct ct_view_selection selected;
  char **folders; /* --sources */
  size_t folder_count;
  enum tui_sort sort;
  struct ct_trace_view view;
  char *name; /* of the trace for SQL */
  struct tui_data data;
  struct tui_paths paths;
  bool wants_edges; /* of the graph, though there may be paths */
  struct tui_graph graph;
  struct tui_replay replay;
  struct tui_source source;
  const struct tui_function **rows; /* of the report: those that pass the filter, sorted */
  size_t row_count, row_first, row_selected;
  char pattern[256]; /* of the report; "": all */
  int64_t shown;     /* the function that source and title are about; TUI_NO_FUNCTION */
  bool is_growing;
};

/* tui.c: makes the rows anew. CT_EINVAL: the pattern. */
int tui_choose_rows(struct tui *tui, const char *pattern, struct ct_diag *diag);
void tui_sort_rows(struct tui *tui);
/* What the graph is to be made of. */
struct tui_sums tui_sums(const struct tui *tui);
/* Of the graph: another root or direction. Its paths are read, and waited for a moment. */
int tui_show_graph(struct tui *tui, int64_t root, bool up, struct ct_diag *diag);
/* Paths that have been read meanwhile are shown. */
void tui_take_paths(struct tui *tui, int wait_ms, struct ct_diag *diag);
/* Of a recording that goes on: what there is now. */
int tui_refresh(struct tui *tui, struct ct_diag *diag);
const char *tui_sort_name(enum tui_sort sort);
/* tui_screen.c; the exit code. */
int tui_screen(struct tui *tui);

#endif
