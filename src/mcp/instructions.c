/* SPDX-License-Identifier: MIT */
/* itrace: instructions of a call, recorded and shown. */
#include "mcp/held.h"

#include <contrail/itrace.h>
#include <contrail/steps.h>
#include <contrail/text.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEP_MS = 50, LIMIT_SECONDS = 10, TERM_TURNS = 20 };

/* ---- recording ---- */

/* Whose thread: a process that runs, or a program that is started. */
struct whose {
  pid_t pid, tid;
  char **argv; /* NULL: pid */
};

static bool
find_whose(struct mcp_call *call, struct whose *whose)
{
  const json_t *arguments = call->arguments, *args = json_object_get(arguments, "args"), *one;
  const char *program = mcp_get_text(arguments, "program");
  size_t i;
  whose->pid = (pid_t)mcp_get_count(arguments, "pid", 0);
  whose->tid = (pid_t)mcp_get_count(arguments, "thread", (uint64_t)whose->pid);
  if ((program != NULL) == (whose->pid != 0)) {
    return mcp_fail(call, "itrace record: pid of a process that runs, or program to start one");
  }
  if (program == NULL) {
    return mcp_allows_process(call, whose->pid);
  }
  if (program[0] != '/' || access(program, X_OK) != 0) {
    return mcp_fail(call, "program is the absolute path of a program, not '%.300s'", program);
  }
  whose->argv = calloc(json_array_size(args) + 2, sizeof(*whose->argv));
  if (whose->argv == NULL) {
    return mcp_fail(call, "out of memory");
  }
  whose->argv[0] = strdup(program);
  json_array_foreach((json_t *)args, i, one)
  {
    whose->argv[i + 1] = strdup(json_string_value(one));
  }
  return mcp_allows_program(call, program);
}

static void
free_whose(struct whose *whose)
{
  for (size_t i = 0; whose->argv != NULL && whose->argv[i] != NULL; i++) {
    free(whose->argv[i]);
  }
  free(whose->argv);
}

/* Until enough is recorded, the time is over, or nobody wants it any more. */
static bool
await(struct mcp_call *call, const struct ct_itrace *tracer, double seconds)
{
  struct pollfd done = {.fd = ct_itrace_fd(tracer), .events = POLLIN};
  for (double waited = 0; waited < seconds * 1000 && !mcp_is_cancelled(call->request); waited += STEP_MS) {
    if (poll(&done, 1, STEP_MS) == 1) {
      return true;
    }
    mcp_progress(call->request, waited / 1000, seconds, "recording instructions");
  }
  return false;
}

/* A program that was started for this has done its work. */
static int
end_program(pid_t pid)
{
  int status = 0;
  kill(-pid, SIGTERM);
  for (int turn = 0; waitpid(pid, &status, WNOHANG) == 0; turn++) {
    poll(NULL, 0, STEP_MS);
    if (turn == TERM_TURNS) {
      kill(-pid, SIGKILL);
    }
  }
  return status;
}

static void
put_summary(struct mcp_call *call, const struct ct_itrace_summary *summary, const char *directory, bool in_time)
{
  const char *function = mcp_get_text(call->arguments, "function"), *when = mcp_get_text(call->arguments, "when");
  mcp_put(call, "recording", mcp_text(directory));
  mcp_put(call, "instructions", json_integer((json_int_t)summary->recorded));
  if (function != NULL) {
    mcp_put(call, "calls", json_integer((json_int_t)summary->stretches));
  }
  if (function != NULL && summary->stretches == 0) {
    mcp_doubt(call, "nothing was recorded: '%.200s' %s", function,
              summary->places == 0 ? "names no function of the program and its libraries"
              : when != NULL       ? "was not called with that condition in this time"
                                   : "was not called in this time");
  }
  if (summary->lost_bytes != 0) {
    mcp_doubt(call, "%llu bytes of records are lost: gaps are shown", (unsigned long long)summary->lost_bytes);
  }
  if (!in_time) {
    mcp_doubt(call, "limit_s was over, or the call was cancelled, before all was recorded");
  }
  mcp_suggest(call, "itrace action=steps recording=%s", directory);
  mcp_suggest(call, "itrace action=last_write recording=%s what=rax step=N", directory);
}

static bool
record(struct mcp_call *call, struct whose *whose, const char *directory)
{
  const json_t *arguments = call->arguments;
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC), streams[3] = {nothing, nothing, nothing}, exec_errno = 0;
  struct ct_itrace_options options = {.struct_size = sizeof(options),
                                      .pid = whose->pid,
                                      .tid = whose->tid,
                                      .argv = whose->argv,
                                      .signal_mask = &call->server->program_mask,
                                      .directory = directory,
                                      .is_lossless = true,
                                      .function = mcp_get_text(arguments, "function"),
                                      .condition = mcp_get_text(arguments, "when"),
                                      .streams = streams,
                                      .own_group = true};
  struct ct_itrace_summary summary = {.struct_size = sizeof(summary)};
  struct ct_itrace *tracer;
  struct ct_diag diag = {""};
  options.stretches = options.function != NULL ? mcp_get_count(arguments, "calls", 1) : 0;
  int code = ct_itrace_begin(&options, &tracer, &exec_errno, &diag);
  if (nothing >= 0) {
    close(nothing);
  }
  if (code != 0) {
    return mcp_fail(call, "%s", exec_errno != 0 ? strerror(exec_errno) : diag.text);
  }
  pid_t pid = ct_itrace_pid(tracer);
  if (whose->argv != NULL) {
    mcp_guard_launched(call->server, pid);
  }
  bool in_time = await(call, tracer, mcp_get_number(arguments, "limit_s", LIMIT_SECONDS));
  code = ct_itrace_end(tracer, &summary, &diag);
  if (whose->argv != NULL && !(code == 0 && summary.has_ended)) {
    end_program(pid);
  }
  if (whose->argv != NULL) {
    mcp_guard_forget(call->server, pid);
    mcp_put(call, "end",
            json_string(summary.has_ended ? "the program has ended" : "the program was ended by the server"));
  }
  if (code != 0) {
    return mcp_fail(call, "%s", diag.text[0] != '\0' ? diag.text : ct_err_text(code));
  }
  put_summary(call, &summary, directory, in_time);
  return true;
}

static bool
record_steps(struct mcp_call *call)
{
  struct whose whose = {0};
  char directory[PATH_MAX];
  if (call->server->options->is_read_only) {
    return mcp_fail(call, "the server is read-only: steps and last_write are all there is");
  }
  if (mcp_get_text(call->arguments, "when") != NULL && mcp_get_text(call->arguments, "function") == NULL) {
    return mcp_fail(call, "itrace record: when goes with function");
  }
  snprintf(directory, sizeof(directory), "%.4000s/i-XXXXXX", call->server->directory);
  bool good = find_whose(call, &whose);
  if (good && mkdtemp(directory) == NULL) {
    good = mcp_fail(call, "no directory can be made in %.300s: %s", call->server->directory, strerror(errno));
  }
  good = good && record(call, &whose, directory);
  free_whose(&whose);
  return good;
}

/* ---- showing ---- */

/* The newest directory of steps of this server. */
static bool
find_last(struct mcp_call *call, char path[PATH_MAX])
{
  struct stat info;
  struct timespec newest = {0};
  DIR *stream = opendir(call->server->directory);
  path[0] = '\0';
  for (const struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
    char one[PATH_MAX];
    snprintf(one, sizeof(one), "%.3000s/%s", call->server->directory, entry->d_name);
    if (strncmp(entry->d_name, "i-", 2) == 0 && stat(one, &info) == 0 &&
        (info.st_mtim.tv_sec > newest.tv_sec ||
         (info.st_mtim.tv_sec == newest.tv_sec && info.st_mtim.tv_nsec > newest.tv_nsec))) {
      newest = info.st_mtim;
      snprintf(path, PATH_MAX, "%s", one);
    }
  }
  if (stream != NULL) {
    closedir(stream);
  }
  return path[0] != '\0' || mcp_fail(call, "nothing was recorded yet: itrace action=record");
}

static bool
show_steps(struct mcp_call *call, bool is_write)
{
  const json_t *arguments = call->arguments;
  char path[PATH_MAX], *text = NULL;
  const char *given = mcp_get_text(arguments, "recording");
  size_t size = 0;
  struct ct_diag diag = {""};
  struct ct_steps_notes notes = {.struct_size = sizeof(notes)};
  struct ct_steps_options options = {.struct_size = sizeof(options),
                                     .tid = (uint32_t)mcp_get_count(arguments, "thread", 0),
                                     .has_step = json_object_get(arguments, "step") != NULL,
                                     .step = mcp_get_count(arguments, "step", 0),
                                     .back = mcp_get_flag(arguments, "back"),
                                     .registers = mcp_get_flag(arguments, "registers"),
                                     .source = mcp_get_flag(arguments, "source"),
                                     .limit = MCP_ROWS_MAX,
                                     .function = is_write ? NULL : mcp_get_text(arguments, "function"),
                                     .last_write = is_write ? mcp_get_text(arguments, "what") : NULL};
  if (is_write && options.last_write == NULL) {
    return mcp_fail(call, "last_write: of what? rax, rflags, xmm3, or 0x7ffe1200:8");
  }
  if (given != NULL ? !mcp_allows_directory(call, given) : !find_last(call, path)) {
    return false;
  }
  FILE *out = open_memstream(&text, &size);
  int code = out != NULL ? ct_steps_write(given != NULL ? given : path, &options, out, &notes, &diag) : CT_ENOMEM;
  if (out != NULL) {
    fclose(out);
  }
  if (code == 0) {
    bool has_more;
    mcp_put(call, "recording", mcp_text(given != NULL ? given : path));
    json_t *lines = mcp_split_lines(text, size, MCP_ROWS_MAX, &has_more);
    mcp_put_page(call, "lines", NULL, lines, mcp_get_count(arguments, "limit", 0),
                 has_more || notes.shown == MCP_ROWS_MAX);
  }
  free(text);
  if (notes.merged != 0) {
    mcp_doubt(call, "threads are merged by time stamps: between two stamps of a thread the order to others is unknown");
  }
  if (notes.damage[0] != '\0') {
    mcp_doubt(call, "%s", notes.damage);
  }
  if (notes.inconsistent != 0) {
    mcp_doubt(call, "at %llu places the records contradict each other", (unsigned long long)notes.inconsistent);
  }
  return code == 0 || mcp_fail(call, "%s", diag.text[0] != '\0' ? diag.text : ct_err_text(code));
}

bool
mcp_tool_itrace(struct mcp_call *call)
{
  const char *action = mcp_get_text(call->arguments, "action"), *cursor = mcp_get_text(call->arguments, "cursor");
  if (cursor != NULL) {
    return mcp_put_next_page(call, cursor, mcp_get_count(call->arguments, "limit", 0));
  }
  call->has_target_text = true;
  if (strcmp(action, "record") == 0) {
    return record_steps(call);
  }
  bool good = show_steps(call, strcmp(action, "last_write") == 0);
  if (good) {
    mcp_suggest(call, "itrace action=steps step=N registers=true: the state before a step");
  }
  return good;
}
