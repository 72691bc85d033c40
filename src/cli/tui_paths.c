/* SPDX-License-Identifier: MIT */
/*
 * contrail tui: the tree of paths, as contrail graph has it. It is of the whole trace, which is read for it: by a
 * thread of its own, while the graph's pane shows the sums that the index has. The thread has nothing but its job;
 * whoever started it takes what it has made when `is_done` says so (release here, acquire there).
 */
#include "cli/tui.h"

#include <contrail/graph.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As many as a screen is for. Each level is two of the reader's, which takes 2048. */
enum { PATHS_MAX = 20000, LEVELS_MAX = 1000, PATTERN_MAX = 8192, IDLE_SHARE = 10 };

struct tui_paths_job {
  pthread_t thread;
  char *directory;
  struct ct_filter filter; /* its tids are the job's own, its texts are these */
  char function[PATTERN_MAX], module[PATTERN_MAX];
  uint32_t *tids;
  int64_t root;
  uint64_t begun_ms;
  atomic_bool is_done, is_unwanted;
  atomic_uint percent;
  int code;
  struct ct_diag diag;
  json_t *graph; /* the answer: an object */
};

static uint64_t
now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* ---- in the thread ---- */

static int
note_progress(void *arg, uint64_t done, uint64_t total)
{
  struct tui_paths_job *job = arg;
  atomic_store_explicit(&job->percent, total != 0 ? (unsigned)(100.0 * (double)done / (double)total) : 0,
                        memory_order_relaxed);
  return atomic_load_explicit(&job->is_unwanted, memory_order_relaxed);
}

/* The filter says this very function. */
static int
check_root(const struct tui_paths_job *job, struct ct_trace *trace, struct ct_diag *diag)
{
  struct ct_filter_compiled *compiled;
  int code = job->root != TUI_NO_FUNCTION ? ct_filter_compile(&job->filter, trace, &compiled, diag) : CT_OK;
  if (code == CT_OK && job->root != TUI_NO_FUNCTION) {
    bool is_found = ct_filter_has_function(compiled, (uint32_t)job->root);
    ct_filter_free_compiled(compiled);
    if (!is_found) {
      snprintf(diag->text, sizeof(diag->text), "no pattern stands for the name of this function");
      code = CT_EINVAL;
    }
  }
  return code;
}

static int
write_graph(struct tui_paths_job *job, struct ct_trace *trace, FILE *out)
{
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct ct_graph_options options = {
      .struct_size = sizeof(options),
      .filter = &job->filter,
      .depth = LEVELS_MAX,
      .paths = PATHS_MAX,
      .json = true,
      .progress = {.update = note_progress, .arg = job},
      .workers = ct_reading_workers(),
  };
  int code = ct_filter_set_range(&job->filter, trace);
  code = code == CT_OK ? check_root(job, trace, &job->diag) : code;
  return code == CT_OK ? ct_graph_write(trace, &options, out, &notes, &job->diag) : code;
}

static void *
read_paths(void *arg)
{
  struct tui_paths_job *job = arg;
  struct ct_trace *trace;
  char *text = NULL;
  size_t size = 0;
  int code = ct_trace_open(job->directory, &trace, &job->diag);
  if (code == CT_OK) {
    FILE *out = open_memstream(&text, &size);
    code = out != NULL ? write_graph(job, trace, out) : CT_ENOMEM;
    if (out != NULL && fclose(out) != 0) {
      code = CT_ENOMEM;
    }
    ct_trace_close(trace);
  }
  if (code == CT_OK) {
    json_error_t error;
    job->graph = json_loadb(text, size, 0, &error);
    if (job->graph == NULL) {
      snprintf(job->diag.text, sizeof(job->diag.text), "the graph cannot be read: %s", error.text);
      code = CT_EFORMAT;
    }
  }
  free(text);
  job->code = code;
  atomic_store_explicit(&job->is_done, true, memory_order_release);
  return NULL;
}

/* ---- beginning and ending it ---- */

static void
end_job(struct tui_paths *paths)
{
  struct tui_paths_job *job = paths->job;
  if (job == NULL) {
    return;
  }
  atomic_store_explicit(&job->is_unwanted, true, memory_order_relaxed);
  pthread_join(job->thread, NULL);
  json_decref(job->graph);
  free(job->directory);
  free(job->tids);
  free(job);
  paths->job = NULL;
}

/* The text as a pattern that matches nothing else. False: it is too long. */
static bool
escape(char *pattern, const char *text)
{
  size_t used = 0;
  for (; *text != '\0'; text++) {
    if (used + 3 > PATTERN_MAX) {
      return false;
    }
    if (strchr("*?[]\\!", *text) != NULL || (*text == '@' && used == 0)) {
      pattern[used++] = '\\';
    }
    pattern[used++] = *text;
  }
  pattern[used] = '\0';
  return true;
}

static bool
make_job(struct tui_paths_job *job, const char *directory, const struct ct_filter *filter,
         const struct tui_function *root)
{
  job->root = root != NULL ? root->id : TUI_NO_FUNCTION;
  job->directory = strdup(directory);
  job->filter = (struct ct_filter){.struct_size = sizeof(job->filter),
                                   .from_tsc = filter->from_tsc,
                                   .to_tsc = filter->to_tsc,
                                   .tid_count = filter->tid_count};
  job->tids = calloc(filter->tid_count + 1, sizeof(*job->tids));
  if (job->directory == NULL || job->tids == NULL) {
    return false;
  }
  if (filter->tid_count != 0) {
    memcpy(job->tids, filter->tids, filter->tid_count * sizeof(*job->tids));
  }
  job->filter.tids = job->tids;
  if (root != NULL) {
    job->filter.function = job->function;
    job->filter.module = job->module;
    return escape(job->function, root->name) && escape(job->module, root->module);
  }
  return true;
}

void
tui_paths_start(struct tui_paths *paths, const char *directory, const struct ct_filter *filter,
                const struct tui_function *root)
{
  sigset_t all, before;
  end_job(paths);
  struct tui_paths_job *job = calloc(1, sizeof(*job));
  if (job == NULL) {
    return;
  }
  job->begun_ms = now_ms();
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool is_begun = make_job(job, directory, filter, root) && pthread_create(&job->thread, NULL, read_paths, job) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (is_begun) {
    paths->job = job;
  } else {
    free(job->directory);
    free(job->tids);
    free(job);
  }
}

bool
tui_paths_are_fresh(const struct tui_paths *paths)
{
  return paths->is_known && now_ms() - paths->ended_ms < IDLE_SHARE * paths->took_ms;
}

bool
tui_paths_are_read(const struct tui_paths *paths, int64_t *root, unsigned *percent)
{
  if (paths->job == NULL) {
    return false;
  }
  *root = paths->job->root;
  *percent = atomic_load_explicit(&paths->job->percent, memory_order_relaxed);
  return true;
}

/* ---- taking what it has made ---- */

static int
by_name(const void *a, const void *b)
{
  const struct tui_function *x = *(const struct tui_function *const *)a, *y = *(const struct tui_function *const *)b;
  int order = strcmp(x->name, y->name);
  order = order == 0 ? strcmp(x->module, y->module) : order;
  order = order == 0 ? strcmp(x->file != NULL ? x->file : "", y->file != NULL ? y->file : "") : order;
  return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

struct taking {
  const struct tui_function **functions; /* by name */
  size_t function_count;
  struct tui_path *paths;
  size_t count, capacity;
};

static int64_t
function_of(const struct taking *taking, const json_t *json)
{
  const char *name = json_string_value(json_object_get(json, "name"));
  const char *module = json_string_value(json_object_get(json, "module"));
  json_int_t line = json_integer_value(json_object_get(json, "line"));
  struct tui_function wanted = {.name = name != NULL ? name : "",
                                .module = module != NULL ? module : "",
                                .file = json_string_value(json_object_get(json, "file")),
                                .line = line > 0 && line < UINT32_MAX ? (uint32_t)line : 0};
  const struct tui_function *key = &wanted, **found = NULL;
  if (module != NULL && taking->function_count != 0) {
    found = bsearch(&key, taking->functions, taking->function_count, sizeof(*taking->functions), by_name);
  }
  return found != NULL ? (*found)->id : TUI_NO_FUNCTION;
}

/* Of what is no function; texts for good. */
static const char *
label_of(const json_t *json)
{
  static const char *const labels[] = {"(other stacks)", "(events lost)"};
  const char *name = json_string_value(json_object_get(json, "name"));
  for (size_t i = 0; name != NULL && i < sizeof(labels) / sizeof(labels[0]); i++) {
    if (strcmp(name, labels[i]) == 0) {
      return labels[i];
    }
  }
  return "?";
}

static int64_t
number_in(const json_t *json, const char *name)
{
  const json_t *value = json_object_get(json, name);
  return json_is_integer(value) ? (int64_t)json_integer_value(value) : TUI_NOT_KNOWN;
}

static bool
take_list(struct taking *taking, const json_t *list)
{
  const json_t *json;
  size_t i;
  json_array_foreach(list, i, json)
  {
    if (taking->count == taking->capacity) {
      size_t capacity = 2 * taking->capacity + 256;
      struct tui_path *more = reallocarray(taking->paths, capacity, sizeof(*more));
      if (more == NULL) {
        return false;
      }
      taking->paths = more;
      taking->capacity = capacity;
    }
    size_t at = taking->count++;
    int64_t folded = number_in(json, "paths"), recursive = number_in(json, "recursive");
    taking->paths[at] = (struct tui_path){.function = function_of(taking, json),
                                          .calls = number_in(json, "calls"),
                                          .recursive = recursive > 0 ? recursive : 0,
                                          .total = number_in(json, "total_ns"),
                                          .self = number_in(json, "self_ns"),
                                          .others = folded > 0 ? (size_t)folded : 0};
    if (taking->paths[at].function == TUI_NO_FUNCTION && folded <= 0) {
      taking->paths[at].label = label_of(json);
    }
    if (!take_list(taking, json_object_get(json, "children"))) {
      return false;
    }
    taking->paths[at].end = taking->count;
  }
  return true;
}

static int
take(struct tui_paths *paths, const struct tui_paths_job *job, const struct tui_data *data)
{
  struct taking taking = {.functions = calloc(data->function_count + 1, sizeof(*taking.functions)),
                          .function_count = data->function_count};
  bool is_taken = taking.functions != NULL;
  if (is_taken) {
    for (size_t i = 0; i < data->function_count; i++) {
      taking.functions[i] = &data->functions[i];
    }
    qsort(taking.functions, taking.function_count, sizeof(*taking.functions), by_name);
    is_taken = take_list(&taking, json_object_get(job->graph, "graph"));
  }
  free(taking.functions);
  if (!is_taken) {
    free(taking.paths);
    return CT_ENOMEM;
  }
  free(paths->paths);
  paths->paths = taking.paths;
  paths->count = taking.count;
  paths->root = job->root;
  int64_t folded = number_in(job->graph, "folded");
  paths->folded = folded > 0 ? (uint64_t)folded : 0;
  paths->is_known = true;
  return CT_OK;
}

bool
tui_paths_take(struct tui_paths *paths, const struct tui_data *data, int wait_ms, struct ct_diag *diag)
{
  const struct timespec pause = {0, 5000000};
  struct tui_paths_job *job = paths->job;
  if (job == NULL) {
    return false;
  }
  for (int i = 0; i < wait_ms / 5 && !atomic_load_explicit(&job->is_done, memory_order_acquire); i++) {
    nanosleep(&pause, NULL);
  }
  if (!atomic_load_explicit(&job->is_done, memory_order_acquire)) {
    return false;
  }
  int code = job->code == CT_OK ? take(paths, job, data) : job->code;
  if (code != CT_OK && code != CT_ECANCELED) {
    snprintf(diag->text, sizeof(diag->text), "no paths: %.400s",
             job->diag.text[0] != '\0' ? job->diag.text : ct_err_text(code));
  }
  paths->ended_ms = now_ms();
  paths->took_ms = paths->ended_ms - job->begun_ms;
  end_job(paths);
  return code == CT_OK;
}

void
tui_paths_free(struct tui_paths *paths)
{
  end_job(paths);
  free(paths->paths);
  *paths = (struct tui_paths){0};
}
