/* SPDX-License-Identifier: MIT */
/* The graph, as text or JSON; see <contrail/graph.h>. The tree comes from paths.c. */
#include <contrail/graph.h>

#include "base/json.h"
#include "base/sized.h"
#include "views/filter.h"
#include "views/paths.h"
#include "views/report.h"
#include "views/warnings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  DEEP = 16,       /* levels: a tree with more of them is indented by one column for each */
  MAX_INDENT = 60, /* columns; deeper levels are numbered */
  NAME_COLUMNS_MIN = 16,
  REST_SHARE = 4, /* thin paths together have a line if they make a fourth of what one has to */
};

struct graph {
  const struct ct_graph_options *options;
  struct ct_trace *trace;
  struct ct_paths paths;
  struct ct_view_reading reading;
  FILE *out;
  uint64_t whole;  /* what shares are of: ticks, or calls where no time is known */
  uint8_t *within; /* of each path, whether it is among those that the limit leaves; NULL: there is none */
  bool by_calls;
  bool has_off;
  unsigned step;    /* of indentation */
  unsigned columns; /* before the names */
};

const char *
ct_paths_name(const struct ct_paths *paths, uint32_t name)
{
  switch (name) {
  case CT_PATH_OTHER:
    return "(other)";
  case CT_PATH_STACKS:
    return "(other stacks)";
  case CT_PATH_LOST:
    return "(events lost)";
  case CT_PATH_ROOT:
    return "";
  default:
    return name >= CT_PATH_THREAD ? paths->labels[name - CT_PATH_THREAD].name : paths->names.names[name].name;
  }
}

static uint64_t
weight(const struct graph *graph, const struct ct_path *path)
{
  return graph->by_calls ? path->total_calls : path->total_ticks;
}

static double
percent(const struct graph *graph, uint64_t part)
{
  return graph->whole != 0 ? 100.0 * (double)part / (double)graph->whole : 0;
}

/* The children of a path that are not shown: the position of the first of them, of so many in all. */
static bool
is_hidden(const struct graph *graph, const struct ct_path *path, uint32_t level)
{
  const struct ct_graph_options *options = graph->options;
  bool is_thin = percent(graph, weight(graph, path)) < options->min_percent;
  is_thin |= graph->within != NULL && graph->within[path - graph->paths.paths] == 0;
  return (options->depth != 0 && level >= options->depth) || is_thin;
}

/* A path and those that come after it, as one. */
static struct ct_path
sum_of_rest(const struct graph *graph, uint32_t first, uint32_t *count)
{
  struct ct_path sum = {0};
  *count = 0;
  for (uint32_t at = first; at != CT_PATH_NONE; at = graph->paths.paths[at].next) {
    const struct ct_path *path = &graph->paths.paths[at];
    sum.calls += path->calls;
    sum.total_calls += path->total_calls;
    sum.total_ticks += path->total_ticks;
    sum.self_ticks += path->self_ticks;
    sum.total_off_ticks += path->total_off_ticks;
    ++*count;
  }
  return sum;
}

/* How many levels are shown, and how many paths. */
static uint32_t
measure(const struct graph *graph, uint32_t *levels)
{
  uint32_t at = graph->paths.paths[CT_PATH_TOP].first, level = 0, shown = 0;
  *levels = 0;
  while (at != CT_PATH_NONE) {
    const struct ct_path *path = &graph->paths.paths[at];
    bool hidden = is_hidden(graph, path, level);
    if (!hidden) {
      shown++;
      *levels = level + 1 > *levels ? level + 1 : *levels;
    }
    if (!hidden && path->first != CT_PATH_NONE) {
      at = path->first;
      level++;
      continue;
    }
    /* What comes after a hidden one is thinner; after one that is too deep all are. */
    while (at != CT_PATH_TOP && (hidden || graph->paths.paths[at].next == CT_PATH_NONE)) {
      at = graph->paths.paths[at].parent;
      hidden = false;
      level--;
    }
    at = at != CT_PATH_TOP ? graph->paths.paths[at].next : CT_PATH_NONE;
  }
  return shown;
}

/* ---- the limit ---- */

struct ranked {
  uint64_t weight;
  uint32_t order, path;
};

/* The heavier first; of equal ones that which is shown first, so that a path never goes before what it hangs below. */
static int
compare_ranked(const void *a, const void *b)
{
  const struct ranked *x = a, *y = b;
  if (x->weight != y->weight) {
    return x->weight < y->weight ? 1 : -1;
  }
  return (x->order > y->order) - (x->order < y->order);
}

/* The so many heaviest paths: with each all that is above it, and of its neighbours none that is thinner. */
static int
choose_within(struct graph *graph, uint64_t limit)
{
  const struct ct_paths *paths = &graph->paths;
  struct ranked *ranked = malloc(((size_t)paths->live + 1) * sizeof(*ranked));
  uint8_t *within = calloc(paths->count, 1);
  uint32_t count = 0;
  if (ranked == NULL || within == NULL) {
    free(ranked);
    free(within);
    return CT_ENOMEM;
  }
  for (uint32_t at = ct_paths_next(paths, CT_PATH_TOP, true); at != CT_PATH_NONE; at = ct_paths_next(paths, at, true)) {
    ranked[count] = (struct ranked){weight(graph, &paths->paths[at]), count, at};
    count++;
  }
  qsort(ranked, count, sizeof(*ranked), compare_ranked);
  for (uint32_t i = 0; i < count && i < limit; i++) {
    within[ranked[i].path] = 1;
  }
  free(ranked);
  graph->within = within;
  return 0;
}

/* ---- text ---- */

static void
put_numbers(const struct graph *graph, const struct ct_path *path, bool is_sum)
{
  char calls[CT_COUNT_CHARS];
  bool has_time = !graph->by_calls;
  const struct ct_trace *trace = graph->trace;
  fprintf(graph->out, "%6.1f ", percent(graph, weight(graph, path)));
  ct_report_put_time(graph->out, has_time, ct_trace_ticks_ns(trace, path->total_ticks));
  ct_report_put_time(graph->out, has_time && !is_sum, ct_trace_ticks_ns(trace, path->self_ticks));
  if (graph->has_off) {
    ct_report_put_time(graph->out, has_time, ct_trace_ticks_ns(trace, path->total_off_ticks));
  }
  fprintf(graph->out, "%11s  ", path->calls != 0 ? ct_format_count(calls, path->calls) : "-");
}

static unsigned
put_indent(const struct graph *graph, uint32_t level)
{
  unsigned columns = level * graph->step;
  if (columns <= MAX_INDENT) {
    fprintf(graph->out, "%*s", (int)columns, "");
    return columns;
  }
  int written = fprintf(graph->out, "%*s[%u] ", MAX_INDENT - 6, "", level);
  return written > 0 ? (unsigned)written : 0;
}

static void
put_name(const struct graph *graph, const struct ct_path *path, unsigned used)
{
  FILE *out = graph->out;
  const char *name = ct_paths_name(&graph->paths, path->name);
  char count[CT_COUNT_CHARS];
  unsigned width = graph->options->width, before = graph->columns + used;
  size_t columns = width > before + NAME_COLUMNS_MIN ? width - before : NAME_COLUMNS_MIN;
  if (path->name >= CT_PATH_THREAD && path->name < CT_PATH_OTHER) {
    const struct ct_path_label *label = &graph->paths.labels[path->name - CT_PATH_THREAD];
    fputs("thread ", out);
    ct_put_printable(out, label->name, SIZE_MAX);
    fprintf(out, "%s%u", label->name[0] != '\0' ? "/" : "", label->tid);
    if (graph->reading.processes > 1) {
      fprintf(out, " of process %u", label->pid);
    }
    return;
  }
  ct_text_put_name(out, name, graph->options->short_names, width != 0 ? columns : 0);
  if (path->recursive != 0) {
    fprintf(out, "  -- %s calls are recursive", ct_format_count(count, path->recursive));
  }
  if (path->name == CT_PATH_OTHER) {
    fprintf(out, ": %s paths", ct_format_count(count, path->folded));
  }
  if (graph->options->source && path->name < CT_PATH_THREAD && graph->paths.names.names[path->name].file != NULL) {
    const struct ct_view_name *function = &graph->paths.names.names[path->name];
    fputs("  ", out);
    ct_put_printable(out, function->file, SIZE_MAX);
    if (function->line != 0) {
      fprintf(out, ":%u", function->line);
    }
  }
}

static void
put_line(const struct graph *graph, uint32_t at, uint32_t level)
{
  const struct ct_path *path = &graph->paths.paths[at];
  put_numbers(graph, path, false);
  put_name(graph, path, put_indent(graph, level));
  putc('\n', graph->out);
}

static void
put_rest(const struct graph *graph, uint32_t first, uint32_t level)
{
  uint32_t count;
  char text[CT_COUNT_CHARS];
  struct ct_path sum = sum_of_rest(graph, first, &count);
  bool is_deep = graph->options->depth != 0 && level >= graph->options->depth;
  if (!is_deep && percent(graph, weight(graph, &sum)) * REST_SHARE < graph->options->min_percent) {
    return; /* not worth a line; the last line says how many are not shown */
  }
  put_numbers(graph, &sum, true);
  put_indent(graph, level);
  fprintf(graph->out, "... %s more\n", ct_format_count(text, count));
}

/* ---- JSON ---- */

static json_t *
node_json(const struct graph *graph, const struct ct_path *path)
{
  const struct ct_trace *trace = graph->trace;
  json_t *json = json_object();
  bool has_time = !graph->by_calls;
  if (path->name < CT_PATH_THREAD) {
    const struct ct_view_name *function = &graph->paths.names.names[path->name];
    json_object_set_new(json, "name", ct_json_string(function->name));
    json_object_set_new(json, "module", ct_json_string(function->module));
    if (function->file != NULL) {
      json_object_set_new(json, "file", ct_json_string(function->file));
      json_object_set_new(json, "line", function->line != 0 ? json_integer(function->line) : json_null());
    }
  } else {
    json_object_set_new(json, "name", ct_json_string(ct_paths_name(&graph->paths, path->name)));
    json_object_set_new(json, "module", json_null());
  }
  if (path->name >= CT_PATH_THREAD && path->name < CT_PATH_OTHER) {
    ct_json_put(json, "tid", graph->paths.labels[path->name - CT_PATH_THREAD].tid);
    ct_json_put(json, "pid", graph->paths.labels[path->name - CT_PATH_THREAD].pid);
  }
  if (path->name == CT_PATH_OTHER) {
    ct_json_put(json, "paths", path->folded);
  }
  ct_json_put(json, "calls", path->calls);
  ct_json_put(json, "recursive", path->recursive);
  ct_report_put_ns(json, "total_ns", has_time, ct_trace_ticks_ns(trace, path->total_ticks));
  ct_report_put_ns(json, "self_ns", has_time, ct_trace_ticks_ns(trace, path->self_ticks));
  ct_report_put_ns(json, "off_ns", has_time && !graph->reading.off_is_bound,
                   ct_trace_ticks_ns(trace, path->total_off_ticks));
  json_object_set_new(json, "percent", json_real(percent(graph, weight(graph, path))));
  return json;
}

/* Without the closing brace, for its children come after it. */
static int
put_open_json(const struct graph *graph, json_t *json)
{
  char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  if (text == NULL) {
    return CT_ENOMEM;
  }
  fwrite(text, 1, strlen(text) - 1, graph->out);
  free(text);
  return 0;
}

static int
put_rest_json(const struct graph *graph, uint32_t first)
{
  uint32_t count;
  struct ct_path sum = sum_of_rest(graph, first, &count);
  json_t *json =
      json_pack("{s:s, s:n, s:I, s:I, s:I, s:f}", "name", "(folded)", "module", "paths", (json_int_t)count, "calls",
                (json_int_t)sum.calls, "total_ns", (json_int_t)ct_trace_ticks_ns(graph->trace, sum.total_ticks),
                "percent", percent(graph, weight(graph, &sum)));
  return ct_report_put_json(graph->out, json);
}

/* ---- both ---- */

static int
put_node(const struct graph *graph, uint32_t at, uint32_t level, bool is_first)
{
  if (!graph->options->json) {
    put_line(graph, at, level);
    return 0;
  }
  fputs(is_first ? "\n" : ",\n", graph->out);
  int code = put_open_json(graph, node_json(graph, &graph->paths.paths[at]));
  fputs(",\"children\":[", graph->out);
  return code;
}

static int
put_hidden(const struct graph *graph, uint32_t first, uint32_t level, bool is_first)
{
  if (!graph->options->json) {
    put_rest(graph, first, level);
    return 0;
  }
  fputs(is_first ? "" : ",\n", graph->out);
  return put_rest_json(graph, first);
}

static int
put_tree(const struct graph *graph)
{
  const struct ct_path *paths = graph->paths.paths;
  const char *close = graph->options->json ? "]}" : "";
  uint32_t at = paths[CT_PATH_TOP].first, level = 0;
  int code = 0;
  while (at != CT_PATH_NONE && code == 0 && !ferror(graph->out)) {
    bool hidden = is_hidden(graph, &paths[at], level), is_first = paths[paths[at].parent].first == at;
    code = hidden ? put_hidden(graph, at, level, is_first) : put_node(graph, at, level, is_first);
    if (!hidden && paths[at].first != CT_PATH_NONE) {
      at = paths[at].first;
      level++;
      continue;
    }
    fputs(hidden ? "" : close, graph->out);
    while (at != CT_PATH_TOP && (hidden || paths[at].next == CT_PATH_NONE)) {
      at = paths[at].parent;
      level--;
      hidden = false;
      fputs(at != CT_PATH_TOP ? close : "", graph->out);
    }
    at = at != CT_PATH_TOP ? paths[at].next : CT_PATH_NONE;
  }
  return code;
}

static void
put_footer(const struct graph *graph, uint32_t shown)
{
  char text[CT_COUNT_CHARS], other[CT_COUNT_CHARS];
  FILE *out = graph->out;
  if (graph->paths.live == 0) {
    fputs("no calls\n", out);
  }
  fprintf(out, "\n%s of %s paths", ct_format_count(text, shown), ct_format_count(other, graph->paths.live));
  if (shown < graph->paths.live) {
    fprintf(out, "; %s--min-share 0 --depth 0 shows all", graph->within != NULL ? "--limit 0 " : "");
  }
  ct_report_put_reading(out, &graph->reading);
  if (graph->paths.folded != 0) {
    fprintf(out, "there were more paths than are kept: %s thin ones are in the lines (other); --paths N keeps more\n",
            ct_format_count(other, graph->paths.folded));
  }
  if (graph->paths.counted != 0) {
    fprintf(out, "%s calls are in no path: they were counted only (--budget)\n",
            ct_format_count(text, graph->paths.counted));
  }
}

static int
put_all(struct graph *graph)
{
  FILE *out = graph->out;
  const struct ct_path *top = &graph->paths.paths[CT_PATH_TOP];
  char counted[CT_FILTER_TEXT_CHARS];
  uint32_t levels, shown;
  graph->by_calls = top->total_ticks == 0;
  graph->whole = weight(graph, top);
  graph->has_off = top->total_off_ticks != 0 && !graph->reading.off_is_bound;
  if (graph->options->filter->limit != 0 && choose_within(graph, graph->options->filter->limit) != 0) {
    return CT_ENOMEM;
  }
  shown = measure(graph, &levels);
  graph->step = levels > DEEP ? 1 : 2;
  graph->columns = 7 + 11 + 11 + (graph->has_off ? 11 : 0) + 13;
  if (graph->options->json) {
    fputs("{\"warnings\":", out);
    int code = ct_report_put_json(out, json_incref(graph->reading.warnings));
    if (graph->paths.is_limited) {
      ct_filter_describe_calls(graph->options->filter, counted);
      fputs(",\n\"filter\":", out);
      code = code == 0 ? ct_report_put_json(out, json_string(counted + strlen("counted: "))) : code;
    }
    fprintf(out, ",\n\"total_ns\":%llu,\"paths\":%u,\"folded\":%llu,\"counted\":%llu,\n\"graph\":[",
            (unsigned long long)ct_trace_ticks_ns(graph->trace, top->total_ticks), graph->paths.live,
            (unsigned long long)graph->paths.folded, (unsigned long long)graph->paths.counted);
    code = code == 0 ? put_tree(graph) : code;
    ct_report_put_end(out, graph->reading.events, graph->reading.dropped);
    return code;
  }
  ct_view_put_list(graph->reading.warnings, "", out);
  if (graph->paths.is_limited) {
    ct_filter_describe_calls(graph->options->filter, counted);
    fprintf(out, "%s; times with what they called\n", counted);
  }
  fprintf(out, "%6s %10s %10s ", "%", "total", "self");
  if (graph->has_off) {
    fprintf(out, "%10s ", "off");
  }
  fprintf(out, "%11s  path\n", "calls");
  int code = put_tree(graph);
  put_footer(graph, shown);
  return code;
}

static int
write_graph(struct ct_trace *trace, const struct ct_graph_options *options, FILE *out, struct ct_view_notes *notes,
            struct ct_diag *diag)
{
  const struct ct_filter *filter = options->filter;
  struct graph graph = {.options = options, .trace = trace, .out = out};
  graph.paths.limit = options->paths;
  graph.paths.per_thread = options->per_thread;
  graph.paths.is_limited = ct_filter_limits_calls(filter);
  graph.paths.is_selected_only = filter->function != NULL || filter->module != NULL || filter->file != NULL;
  graph.reading = (struct ct_view_reading){.trace = trace,
                                           .filter = filter,
                                           .family = options->family,
                                           .time = options->time,
                                           .progress = &options->progress,
                                           .workers = options->workers,
                                           .makes_index = true};
  int code = ct_paths_collect(&graph.paths, &graph.reading, diag);
  if (code == 0) {
    code = put_all(&graph);
    code = code == 0 && (fflush(out) != 0 || ferror(out)) ? CT_EIO : code;
    if (code != 0) {
      ct_fail(diag, code, "cannot write the graph: %s", code == CT_EIO ? strerror(errno) : ct_err_text(code));
    }
  }
  notes->shown = graph.paths.live;
  notes->damaged_threads = graph.reading.notes.damaged_threads;
  notes->first_damaged_tid = graph.reading.notes.first_damaged_tid;
  ct_view_reading_destroy(&graph.reading);
  ct_paths_destroy(&graph.paths);
  free(graph.within);
  return code;
}

int
ct_graph_write(struct ct_trace *trace, const struct ct_graph_options *given, FILE *out, struct ct_view_notes *notes,
               struct ct_diag *diag)
{
  struct ct_graph_options options;
  struct ct_view_notes own = {0};
  struct ct_filter filter;
  int code = ct_filter_take_with(&options, sizeof(options), given, &options.filter, &filter, diag);
  if (code != 0) {
    return code;
  }
  if (filter.types != 0 || filter.levels != 0) {
    return ct_fail(diag, CT_EINVAL, "paths are made of calls of all types and levels: leave out types and levels");
  }
  code = write_graph(trace, &options, out, &own, diag);
  return code == 0 && notes != NULL ? ct_sized_give(notes, &own, sizeof(own), diag) : code;
}
