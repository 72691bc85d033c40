/* SPDX-License-Identifier: MIT */
/* contrail tui: a trace as a screen: its report, who calls whom, the calls in time order, and their source. */
#include "cli/tui.h"

#include "cli/progress.h"
#include "cli/screen.h"

#include <contrail/filter.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 100 }; /* for the paths of a small trace, before others are shown */

static const char *const sort_names[TUI_SORTS] = {"total", "self", "calls", "p50", "p99", "max", "name"};

const char *
tui_sort_name(enum tui_sort sort)
{
  return sort_names[sort];
}

static int
apply_sort(const struct ct_applied *applied)
{
  for (int sort = 0; sort < TUI_SORTS; sort++) {
    if (strcmp(applied->value, sort_names[sort]) == 0) {
      *(enum tui_sort *)applied->member = sort;
      return CT_EXIT_OK;
    }
  }
  return ct_usage_error(applied->command, "--sort takes total, self, calls, p50, p99, max or name, not '%s'",
                        applied->value);
}

/* Member: the whole structure. */
static int
apply_folder(const struct ct_applied *applied)
{
  struct tui *tui = applied->member;
  char **more = reallocarray(tui->folders, tui->folder_count + 1, sizeof(*more));
  if (more == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  tui->folders = more;
  tui->folders[tui->folder_count++] = (char *)applied->value;
  return CT_EXIT_OK;
}

static const struct ct_option options[] = {
    {.name = "sort",
     .letter = 's',
     .argument = "KEY",
     .help = "sort the report at first by total (default), self, calls, p50, p99, max or name",
     .values = "total self calls p50 p99 max name",
     .apply = apply_sort,
     .offset = offsetof(struct tui, sort)},
    {.name = "sources",
     .argument = "DIR",
     .help = "look for source files in DIR too, by the whole path in the trace and by its end. May be given "
             "several times",
     .values = CT_COMPLETE_DIRECTORY,
     .adds_up = true,
     .apply = apply_folder},
    CT_OPTION_FUNCTION(struct tui, selected, "only functions that match, in the report at first, as in record --trace"),
    CT_OPTION_GROUP(ct_thread_options, struct tui, selected),
    CT_OPTION_GROUP(ct_process_options, struct tui, selected),
    CT_OPTION_GROUP(ct_range_options, struct tui, selected),
    CT_OPTION_GROUP(ct_names_options, struct tui, selected.look),
    CT_OPTIONS_END,
};

/* ---- rows of the report ---- */

static int64_t
key_of(const struct tui_function *function, enum tui_sort sort)
{
  const int64_t keys[TUI_SORTS] = {function->total, function->self, function->calls,
                                   function->p50,   function->p99,  function->max};
  return keys[sort];
}

static int
compare(const void *a, const void *b, void *arg)
{
  const struct tui_function *x = *(const struct tui_function *const *)a, *y = *(const struct tui_function *const *)b;
  enum tui_sort sort = *(const enum tui_sort *)arg;
  int64_t kx = key_of(x, sort), ky = key_of(y, sort);
  int by_name = strcmp(x->name, y->name);
  by_name = by_name != 0 ? by_name : (x->id > y->id) - (x->id < y->id);
  return sort != TUI_SORT_NAME && kx != ky ? (kx < ky ? 1 : -1) : by_name;
}

void
tui_sort_rows(struct tui *tui)
{
  if (tui->row_count != 0) {
    qsort_r(tui->rows, tui->row_count, sizeof(*tui->rows), compare, &tui->sort);
  }
}

int
tui_choose_rows(struct tui *tui, const char *pattern, struct ct_diag *diag)
{
  struct ct_filter filter = {.struct_size = sizeof(filter), .function = pattern[0] != '\0' ? pattern : NULL};
  struct ct_filter_compiled *compiled = NULL;
  int code = filter.function != NULL ? ct_filter_compile(&filter, tui->view.trace, &compiled, diag) : CT_OK;
  if (code != CT_OK) {
    return code;
  }
  const struct tui_function **rows = calloc(tui->data.function_count + 1, sizeof(*rows));
  size_t count = 0;
  for (size_t i = 0; rows != NULL && i < tui->data.function_count; i++) {
    const struct tui_function *function = &tui->data.functions[i];
    if (compiled == NULL || ct_filter_has_function(compiled, (uint32_t)function->id)) {
      rows[count++] = function;
    }
  }
  ct_filter_free_compiled(compiled);
  if (rows == NULL) {
    snprintf(diag->text, sizeof(diag->text), "out of memory");
    return CT_ENOMEM;
  }
  free(tui->rows);
  tui->rows = rows;
  tui->row_count = count;
  if (pattern != tui->pattern) {
    snprintf(tui->pattern, sizeof(tui->pattern), "%s", pattern);
  }
  tui_sort_rows(tui);
  return CT_OK;
}

/* ---- opening, and again ---- */

/* As it is asked by SQL: the process that was selected, its piece and thread. */
static char *
name_of(const struct tui *tui, const char *argument)
{
  struct ct_trace_form form = {.struct_size = sizeof(form)};
  struct ct_diag diag = {""};
  char *name = NULL, thread[16] = "", window[40] = "";
  if (ct_trace_form_parse(argument, &form, &diag) != CT_OK) {
    return NULL;
  }
  if (tui->view.filter.tid_count == 1) {
    snprintf(thread, sizeof(thread), "#%u", tui->view.filter.tids[0]);
  }
  const char *from = form.from != NULL ? form.from : tui->selected.from;
  const char *to = form.to != NULL ? form.to : tui->selected.to;
  uint64_t number = form.window != 0 ? form.window : tui->selected.window;
  bool has_piece = number == 0 && (from != NULL || to != NULL);
  if (number != 0) {
    snprintf(window, sizeof(window), "@window:%" PRIu64, number);
    from = to = NULL;
  }
  int length = asprintf(&name, "%s%s%s%s%s%s%s", ct_trace_path(tui->view.trace), window, has_piece ? "@" : "",
                        from != NULL ? from : "", has_piece ? ".." : "", to != NULL ? to : "", thread);
  ct_trace_form_free(&form);
  return length >= 0 ? name : NULL;
}

struct tui_sums
tui_sums(const struct tui *tui)
{
  return (struct tui_sums){.data = &tui->data, .paths = tui->wants_edges ? NULL : &tui->paths};
}

/* Those of the graph's root, unless that is what is there or under way. anew: of a recording that has gone on. */
static void
read_paths(struct tui *tui, bool anew)
{
  const struct tui_graph *graph = &tui->graph;
  int64_t root;
  unsigned percent;
  bool is_read = tui_paths_are_read(&tui->paths, &root, &percent) && root == graph->root;
  bool is_known = tui->paths.is_known && tui->paths.root == graph->root;
  if (graph->up || tui->wants_edges || is_read || (is_known && (!anew || tui_paths_are_fresh(&tui->paths)))) {
    return;
  }
  tui_paths_start(&tui->paths, ct_trace_path(tui->view.trace), &tui->view.filter,
                  tui_data_function(&tui->data, graph->root));
}

int
tui_show_graph(struct tui *tui, int64_t root, bool up, struct ct_diag *diag)
{
  struct tui_sums sums = tui_sums(tui);
  int code = tui_graph_begin(&tui->graph, &sums, root, up);
  if (code == CT_OK) {
    read_paths(tui, false);
    tui_take_paths(tui, WAIT_MS, diag);
  }
  return code;
}

void
tui_take_paths(struct tui *tui, int wait_ms, struct ct_diag *diag)
{
  if (tui_paths_take(&tui->paths, &tui->data, wait_ms, diag)) {
    struct tui_sums sums = tui_sums(tui);
    tui_graph_renew(&tui->graph, &sums);
  }
}

static int
read_data(struct tui *tui, const struct ct_view_progress *progress, struct ct_diag *diag)
{
  int code = tui_data_read(&tui->data, tui->name, ct_trace_function_count(tui->view.trace), progress, diag);
  code = code == CT_OK ? tui_choose_rows(tui, tui->pattern, diag) : code;
  return code;
}

int
tui_refresh(struct tui *tui, struct ct_diag *diag)
{
  int64_t selected = tui->row_selected < tui->row_count ? tui->rows[tui->row_selected]->id : TUI_NO_FUNCTION;
  int code = ct_trace_refresh(tui->view.trace, diag);
  code = code == CT_OK ? read_data(tui, NULL, diag) : code;
  if (code != CT_OK) {
    return code;
  }
  for (size_t i = 0; i < tui->row_count; i++) {
    tui->row_selected = tui->rows[i]->id == selected ? i : tui->row_selected;
  }
  struct tui_sums sums = tui_sums(tui);
  code = tui_graph_renew(&tui->graph, &sums);
  if (code != CT_OK) {
    return code;
  }
  read_paths(tui, true);
  bool was_at_end = tui->replay.is_at_end;
  code = tui_replay_open(&tui->replay, ct_trace_path(tui->view.trace), &tui->view.filter, diag);
  code = code == CT_OK && was_at_end ? tui_replay_reread(&tui->replay, &tui->data, diag) : code;
  tui->is_growing = !ct_trace_is_complete(tui->view.trace);
  return code;
}

static int
open_all(struct tui *tui, const char *argument, struct ct_diag *diag)
{
  struct ct_progress line;
  struct ct_view_progress progress = {ct_progress_update, ct_progress_end, &line};
  tui->is_growing = !ct_trace_is_complete(tui->view.trace) && !ct_trace_has_range(tui->view.trace);
  tui->name = name_of(tui, argument);
  tui->replay.warnings = json_array();
  if (tui->name == NULL || tui->replay.warnings == NULL) {
    snprintf(diag->text, sizeof(diag->text), "out of memory");
    return CT_ENOMEM;
  }
  ct_progress_start(&line, "making the index of the trace");
  int code = read_data(tui, &progress, diag);
  ct_progress_end(&line);
  code = code == CT_OK ? tui_replay_open(&tui->replay, ct_trace_path(tui->view.trace), &tui->view.filter, diag) : code;
  code = code == CT_OK ? tui_replay_go(&tui->replay, &tui->data, 0, diag) : code;
  code = code == CT_OK ? tui_show_graph(tui, TUI_NO_FUNCTION, false, diag) : code;
  return code;
}

static int
show(struct tui *tui, const char *argument)
{
  struct ct_diag diag = {""};
  if (tui->selected.filter.function != NULL) {
    snprintf(tui->pattern, sizeof(tui->pattern), "%s", tui->selected.filter.function);
    tui->selected.filter.function = NULL;
  }
  int code = ct_open_trace_form(tui->command, argument, &tui->selected, &tui->view);
  if (code != CT_EXIT_OK) {
    return code;
  }
  int error = tui->view.filter.tid_count > 1 ? CT_EINVAL : open_all(tui, argument, &diag);
  if (tui->view.filter.tid_count > 1) {
    code = ct_usage_error(tui->command, "one --thread at a time");
  } else if (error != CT_OK) {
    code = ct_command_failed(tui->command, "%s", diag.text[0] != '\0' ? diag.text : ct_err_text(error));
    code = error == CT_EINVAL || error == CT_ERANGE ? CT_EXIT_USAGE : code;
  } else {
    code = tui_screen(tui);
  }
  tui_replay_free(&tui->replay);
  tui_paths_free(&tui->paths);
  tui_graph_free(&tui->graph);
  tui_source_free(&tui->source);
  tui_data_free(&tui->data);
  free(tui->rows);
  free(tui->name);
  ct_trace_close(tui->view.trace);
  return code;
}

static int
run(int argc, char **argv)
{
  struct tui tui = {.command = &ct_command_tui, .shown = TUI_NO_FUNCTION};
  int code = ct_parse(&ct_command_tui, argc, argv, &tui);
  const char *argument = code == -1 ? ct_trace_argument(&ct_command_tui, argc, argv) : NULL;
  if (argument != NULL && !ct_screen_is_possible()) {
    code = ct_usage_error(&ct_command_tui, "standard input and output must be a terminal: contrail report, graph and "
                                           "replay write to files and pipes");
  } else if (argument != NULL) {
    code = show(&tui, argument);
  }
  ct_view_selection_free(&tui.selected);
  free(tui.folders);
  return code == -1 ? CT_EXIT_USAGE : code;
}

const struct ct_command ct_command_tui = {
    .name = "tui",
    .summary = "a trace on the terminal: report, graph, replay and source side by side",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Shows the trace in DIR (default " CT_DEFAULT_TRACE ") as a screen with keys (? shows them): calls and\n"
             "times per function, who calls whom as a tree, the calls in time order, and the source file of the\n"
             "function. It reads only what it shows, by the index, so it can show long traces, and recordings\n"
             "that go on.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
