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
#include <signal.h>
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
  unsigned long long started; /* of pid */
  char **argv;                /* NULL: pid */
  struct mcp_file file;       /* of argv[0] */
};

/* Another process's would be traced in its place. */
static bool
is_thread_of(pid_t pid, pid_t tid)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
  return access(path, F_OK) == 0;
}

/* The process of a session that is not recorded any more: hooks and the tracer would be in each other's way. */
static bool
find_session(struct mcp_call *call, pid_t *pid)
{
  struct mcp_held *held = mcp_held_get(call, mcp_get_text(call->arguments, "session"));
  if (held == NULL) {
    return false;
  }
  *pid = held->session != NULL ? held->session->pid : 0;
  if (held->session == NULL) {
    mcp_fail(call, "%s is a trace from the disk: it has no process", held->name);
  } else if (mcp_held_is_live(held)) {
    mcp_fail(call,
             "%s is being recorded, and its hooks would be in the way: session action=stop end=false session=%s first",
             held->name, held->name);
  } else if (kill(*pid, 0) != 0 || (held->session->started != 0 && held->session->started != mcp_started_at(*pid))) {
    mcp_fail(call, "the process of %s has ended: give program to start one", held->name);
  }
  mcp_held_put(held);
  return !call->failed;
}

static bool
find_whose(struct mcp_call *call, struct whose *whose)
{
  const json_t *arguments = call->arguments, *args = json_object_get(arguments, "args"), *one;
  const char *program = mcp_get_text(arguments, "program");
  char path[PATH_MAX];
  size_t i;
  whose->pid = (pid_t)mcp_get_count(arguments, "pid", 0);
  if (json_object_get(arguments, "session") != NULL && (whose->pid != 0 || !find_session(call, &whose->pid))) {
    return mcp_fail(call, "itrace record: session or pid, not both");
  }
  whose->tid = (pid_t)mcp_get_count(arguments, "thread", (uint64_t)whose->pid);
  if ((program != NULL) == (whose->pid != 0)) {
    return mcp_fail(call, "itrace record: pid of a process that runs, or program to start one");
  }
  if (program == NULL && !is_thread_of(whose->pid, whose->tid)) {
    return mcp_fail(call, "process %d has no thread %d", (int)whose->pid, (int)whose->tid);
  }
  if (program == NULL) {
    return mcp_allows_process(call, whose->pid, &whose->started);
  }
  if (program[0] != '/' || access(program, X_OK) != 0 ||
      snprintf(path, sizeof(path), "%s", program) >= (int)sizeof(path)) {
    return mcp_fail(call, "program is the absolute path of a program, not '%.300s'", program);
  }
  if (!mcp_allows_program(call, path, &whose->file)) {
    return false;
  }
  whose->argv = calloc(json_array_size(args) + 2, sizeof(*whose->argv));
  if (whose->argv == NULL) {
    return mcp_fail(call, "out of memory");
  }
  whose->argv[0] = strdup(path);
  json_array_foreach((json_t *)args, i, one)
  {
    whose->argv[i + 1] = strdup(json_string_value(one));
  }
  return true;
}

static void
free_whose(struct whose *whose)
{
  for (size_t i = 0; whose->argv != NULL && whose->argv[i] != NULL; i++) {
    free(whose->argv[i]);
  }
  free(whose->argv);
}

/* Until enough is recorded, the time is over, its files are as large as they may be, or nobody wants it any more. */
static bool
await(struct mcp_call *call, const struct ct_itrace *tracer, double seconds, const char *directory, uint64_t room)
{
  struct pollfd done = {.fd = ct_itrace_fd(tracer), .events = POLLIN};
  for (double waited = 0; waited < seconds * 1000 && !mcp_is_cancelled(call->request); waited += STEP_MS) {
    if (poll(&done, 1, STEP_MS) == 1) {
      return true;
    }
    mcp_progress(call->request, waited / 1000, seconds, "recording instructions");
    if (mcp_disk_used(directory) > room) {
      mcp_doubt(call, "the recording is as large as it may be (--max-size, --max-disk): what comes after is missing");
      return true;
    }
  }
  return false;
}

/* A program that was started for this has done its work. */
static void
end_program(const struct mcp_group *group)
{
  mcp_group_signal(group, SIGTERM);
  for (int turn = 0; waitpid(group->leader, NULL, WNOHANG) == 0; turn++) {
    poll(NULL, 0, STEP_MS);
    if (turn == TERM_TURNS) {
      mcp_group_signal(group, SIGKILL);
    }
  }
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
  if (mcp_get_flag(call->arguments, "all_threads")) {
    mcp_put(call, "threads", json_integer((json_int_t)summary->threads));
  }
  if (summary->unrecorded != 0) {
    mcp_doubt(call, "%llu threads of the process were not recorded%s%s", (unsigned long long)summary->unrecorded,
              mcp_get_flag(call->arguments, "all_threads") ? "" : " (all_threads: true)",
              summary->why[0] != '\0' ? ": see below" : "");
  }
  if (summary->incomplete != 0 || summary->why[0] != '\0') {
    mcp_doubt(call, "%llu threads were not recorded up to their end%s%s", (unsigned long long)summary->incomplete,
              summary->why[0] != '\0' ? ": " : "", summary->why);
  }
  if (summary->left != 0) {
    mcp_doubt(call,
              "%llu times a thread ran on unrecorded, because contrail got no processor for a second: gaps are shown",
              (unsigned long long)summary->left);
  }
  if (summary->lost_bytes != 0) {
    mcp_doubt(call, "%llu bytes of records are lost: gaps are shown", (unsigned long long)summary->lost_bytes);
  }
  if (!in_time) {
    mcp_doubt(call, "limit_s was over, or the call was cancelled, before all was recorded");
  }
  if (summary->recorded == 0) {
    mcp_suggest(call, "itrace action=record with another function or when, or a longer limit_s");
    return;
  }
  mcp_suggest(call, "itrace action=steps recording=%s", directory);
  mcp_suggest(call, "itrace action=last_write recording=%s what=rax step=N", directory);
}

/*
 * The program's standard input: a pipe that nobody writes to, which ends at once as /dev/null does, and by which the
 * guardian knows the program before we know its id. Its output goes nowhere. streams[0] -1: none can be had.
 */
static void
open_streams(struct mcp_call *call, int streams[3])
{
  int ends[2];
  streams[1] = streams[2] = open("/dev/null", O_RDWR | O_CLOEXEC);
  streams[0] = -1;
  if (pipe2(ends, O_CLOEXEC) == 0) {
    close(ends[1]);
    streams[0] = ends[0];
    mcp_guard_pipe(call->server, ends[0], true);
  }
}

static void
close_streams(const int streams[3])
{
  if (streams[0] >= 0) {
    close(streams[0]);
  }
  if (streams[1] >= 0) {
    close(streams[1]);
  }
}

/* The program, if one was started for this, is known to the guardian from the first moment to its last. */
static int
begin(struct mcp_call *call, const struct whose *whose, const struct ct_itrace_options *options,
      struct ct_itrace **tracer, int *exec_errno, struct ct_diag *diag)
{
  int streams[3] = {-1, -1, -1};
  struct ct_itrace_options own = *options;
  if (whose->argv != NULL) {
    open_streams(call, streams);
    if (streams[0] < 0 || streams[1] < 0) {
      close_streams(streams);
      snprintf(diag->text, sizeof(diag->text), "out of descriptors");
      return CT_EIO;
    }
    own.streams = streams;
  }
  int code = ct_itrace_begin(&own, tracer, exec_errno, diag);
  if (code == 0 && whose->argv == NULL && mcp_started_at(whose->pid) != whose->started) {
    ct_itrace_end(*tracer, NULL, NULL);
    snprintf(diag->text, sizeof(diag->text), "process %d has ended, and another one has its number", (int)whose->pid);
    return CT_ESRCH;
  }
  if (code == 0 && whose->argv != NULL) {
    mcp_guard_launched(call->server, ct_itrace_pid(*tracer));
  }
  mcp_guard_pipe(call->server, streams[0], false);
  close_streams(streams);
  return code;
}

static bool
record(struct mcp_call *call, struct whose *whose, const char *directory, uint64_t room)
{
  const json_t *arguments = call->arguments;
  int exec_errno = 0;
  struct ct_itrace_options options = {.struct_size = sizeof(options),
                                      .pid = whose->pid,
                                      .tid = whose->tid,
                                      .argv = whose->argv,
                                      .program_device = whose->file.device,
                                      .program_inode = whose->file.inode,
                                      .signal_mask = &call->server->program_mask,
                                      .directory = directory,
                                      .is_lossless = true,
                                      .function = mcp_get_text(arguments, "function"),
                                      .condition = mcp_get_text(arguments, "when"),
                                      .own_group = true};
  struct ct_itrace_summary summary = {.struct_size = sizeof(summary)};
  struct ct_itrace *tracer;
  struct ct_diag diag = {""};
  options.all_threads = mcp_get_flag(arguments, "all_threads");
  options.stretches = options.function != NULL ? mcp_get_count(arguments, "calls", 1) : 0;
  int code = begin(call, whose, &options, &tracer, &exec_errno, &diag);
  if (code != 0) {
    return mcp_fail(call, "%s", exec_errno != 0 ? strerror(exec_errno) : diag.text);
  }
  struct mcp_group group = {.fd = -1};
  if (whose->argv != NULL) {
    mcp_group_open(&group, ct_itrace_pid(tracer));
  }
  bool in_time = await(call, tracer, mcp_get_number(arguments, "limit_s", LIMIT_SECONDS), directory, room);
  code = ct_itrace_end(tracer, &summary, &diag);
  if (whose->argv != NULL && !(code == 0 && summary.has_ended)) {
    end_program(&group);
  }
  if (whose->argv != NULL) {
    mcp_guard_forget(call->server, group.leader);
    mcp_group_close(&group);
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
  if (mcp_get_flag(call->arguments, "all_threads") && json_object_get(call->arguments, "thread") != NULL) {
    return mcp_fail(call, "itrace record: thread is for one, all_threads for all: not both");
  }
  snprintf(directory, sizeof(directory), "%.4000s/i-XXXXXX", call->server->directory);
  uint64_t room = 0;
  bool good = find_whose(call, &whose) && mcp_disk_room(call, &room);
  if (good && mkdtemp(directory) == NULL) {
    good = mcp_fail(call, "no directory can be made in %.300s: %s", call->server->directory, strerror(errno));
  } else if (good && !record(call, &whose, directory, room)) {
    mcp_remove_tree(directory); /* the last recording is still the one before */
    good = false;
  }
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

static int
on_progress(void *request, uint64_t done, uint64_t total)
{
  mcp_progress(request, (double)done, (double)total, "reading the steps");
  return mcp_is_cancelled(request);
}

static bool
show_steps(struct mcp_call *call, bool is_write)
{
  const json_t *arguments = call->arguments;
  char path[PATH_MAX], place[PATH_MAX], *text = NULL;
  int fd = -1;
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
                                     .last_write = is_write ? mcp_get_text(arguments, "what") : NULL,
                                     .progress = on_progress,
                                     .progress_context = call->request};
  if (is_write && options.last_write == NULL) {
    return mcp_fail(call, "last_write: of what? rax, rflags, xmm3, or 0x7ffe1200:8");
  }
  if (given != NULL && realpath(given, path) == NULL) {
    return mcp_fail(call, "there is no directory %.300s", given);
  }
  if (given != NULL ? !mcp_allows_held(call, path, &fd) : !find_last(call, path)) {
    return false;
  }
  mcp_place(place, path, fd, NULL);
  FILE *out = open_memstream(&text, &size);
  int code = out != NULL ? ct_steps_write(place, &options, out, &notes, &diag) : CT_ENOMEM;
  if (out != NULL) {
    fclose(out);
  }
  if (fd >= 0) {
    close(fd);
  }
  if (code == 0) {
    bool has_more;
    mcp_put(call, "recording", mcp_text(path));
    json_t *lines = mcp_split_lines(text, size, MCP_ROWS_MAX, &has_more);
    mcp_put_page(call, "lines", NULL, lines, mcp_get_count(arguments, "limit", 0),
                 has_more || notes.shown == MCP_ROWS_MAX);
  }
  free(text);
  if (notes.shown == 0 && notes.waited != 0) {
    mcp_doubt(call, "the thread executed no instruction while recorded, but waited all the time");
  }
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
