/* SPDX-License-Identifier: MIT */
/* launch and attach: from arguments to the options of a session. */
#include "mcp/held.h"

#include <contrail/exclude.h>
#include <contrail/text.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { LAST_BYTES_MAX_LOG = 40, SHOWN_PATTERNS = 50 };

/* ---- lists ---- */

/* A copy of a list of texts with room for `more` before them, ended by NULL. */
static char **
copy_list(const json_t *list, size_t more)
{
  char **copy = calloc(json_array_size(list) + more + 1, sizeof(*copy));
  size_t i;
  json_t *one;
  json_array_foreach((json_t *)list, i, one)
  {
    if (copy != NULL) {
      copy[more + i] = strdup(json_string_value(one));
    }
  }
  return copy;
}

static bool
has_name(const char *variable, const char *name)
{
  size_t length = strlen(name);
  return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

/* The server's environment with what `given` sets and leaves out. */
static char **
make_environment(const json_t *given)
{
  size_t count = 0, at = 0;
  const char *name;
  json_t *value;
  while (environ[count] != NULL) {
    count++;
  }
  char **list = calloc(count + json_object_size(given) + 1, sizeof(*list));
  for (size_t i = 0; list != NULL && i < count; i++) {
    bool is_given = false;
    json_object_foreach((json_t *)given, name, value)
    {
      is_given |= has_name(environ[i], name);
    }
    if (!is_given) {
      list[at++] = strdup(environ[i]);
    }
  }
  json_object_foreach((json_t *)given, name, value)
  {
    if (list != NULL && json_is_string(value) && asprintf(&list[at], "%s=%s", name, json_string_value(value)) >= 0) {
      at++;
    }
  }
  return list;
}

static bool
check_environment(struct mcp_call *call, const json_t *given)
{
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)given, name, value)
  {
    if (name[0] == '\0' || strchr(name, '=') != NULL) {
      return mcp_fail(call, "env: '%.60s' cannot be the name of a variable", name);
    }
    /* What the loader and the C library load code by; by what an interpreter does so only it knows. */
    if (call->server->options->allow_count != 0 && (strncmp(name, "LD_", 3) == 0 || strcmp(name, "GCONV_PATH") == 0)) {
      return mcp_fail(call, "env: %.60s would load other programs' code, which --allow does not name", name);
    }
  }
  return true;
}

/* ---- what is recorded ---- */

static bool
take_patterns(struct mcp_call *call, struct ct_session_options *options)
{
  const json_t *patterns = json_object_get(call->arguments, "patterns"),
               *detail = json_object_get(call->arguments, "detail"), *one;
  const char *mode = mcp_get_text(call->arguments, "mode");
  struct ct_diag diag = {""};
  size_t i;
  if (patterns == NULL && detail == NULL && mode == NULL) {
    return true;
  }
  options->selection = ct_selection_create();
  if (options->selection == NULL) {
    return mcp_fail(call, "out of memory");
  }
  if (patterns != NULL && json_array_size(patterns) == 0) {
    ct_selection_set_none(options->selection);
  }
  for (int m = CT_SELECT_AUTO; mode != NULL && m <= CT_SELECT_LIGHT; m++) {
    if (strcmp(mode, ct_select_mode_name((enum ct_select_mode)m)) == 0) {
      ct_selection_set_mode(options->selection, (enum ct_select_mode)m);
    }
  }
  json_array_foreach((json_t *)patterns, i, one)
  {
    if (ct_selection_add(options->selection, json_string_value(one), CT_SELECT_AUTO, &diag) != 0) {
      return mcp_fail(call, "pattern '%.200s': %s", json_string_value(one), diag.text);
    }
  }
  json_array_foreach((json_t *)detail, i, one)
  {
    const char *text = json_string_value(one);
    if (ct_selection_add_detail(options->selection, strcmp(text, "all") == 0 ? NULL : text, &diag) != 0) {
      return mcp_fail(call, "detail '%.200s': %s", text, diag.text);
    }
  }
  return true;
}

static bool
take_exclusions(struct mcp_call *call, struct ct_session_options *options)
{
  const json_t *list = json_object_get(call->arguments, "exclude"), *one;
  struct ct_diag diag = {""};
  size_t i;
  json_array_foreach((json_t *)list, i, one)
  {
    if (options->exclude == NULL && (options->exclude = ct_exclude_create()) == NULL) {
      return mcp_fail(call, "out of memory");
    }
    if (ct_exclude_add(options->exclude, json_string_value(one), &diag) != 0) {
      return mcp_fail(call, "exclude '%.200s': %s", json_string_value(one), diag.text);
    }
  }
  return true;
}

static bool
take_rules(struct mcp_call *call, struct mcp_session *session)
{
  const json_t *list = json_object_get(call->arguments, "triggers"), *one;
  struct ct_diag diag = {""};
  size_t i;
  json_array_foreach((json_t *)list, i, one)
  {
    if (ct_rule_check(json_string_value(one), &diag) != 0) {
      return mcp_fail(call, "trigger '%.200s': %s", json_string_value(one), diag.text);
    }
  }
  if (json_array_size(list) > CT_RULES_MAX) {
    return mcp_fail(call, "triggers: at most %d", CT_RULES_MAX);
  }
  session->rules = copy_list(list, 0);
  session->options.rules = (const char *const *)session->rules;
  session->options.rule_count = json_array_size(list);
  return session->rules != NULL || mcp_fail(call, "out of memory");
}

/* "64M", "512K", "1G"; 0: it is no size. */
static uint64_t
parse_size(const char *text)
{
  char *end;
  errno = 0;
  unsigned long long number = strtoull(text, &end, 10);
  const char *units = "KMGT", *unit = *end != '\0' ? strchr(units, *end) : NULL;
  if (text[0] < '0' || text[0] > '9' || errno != 0 || unit == NULL || end[1] != '\0' || number == 0 ||
      number >> LAST_BYTES_MAX_LOG != 0) {
    return 0;
  }
  return number << (10 * (unit - units + 1));
}

static bool
take_last(struct mcp_call *call, struct ct_session_options *options)
{
  char text[64], *rest = text;
  const char *given = mcp_get_text(call->arguments, "last");
  uint64_t bytes = 0, ns = 0;
  if (!mcp_disk_room(call, &options->max_bytes)) {
    return false;
  }
  options->max_windows_bytes = options->max_bytes < CT_WINDOWS_BYTES_DEFAULT ? options->max_bytes : 0;
  if (given == NULL) {
    return true;
  }
  options->max_bytes = 0;
  bool good = strlen(given) < sizeof(text);
  snprintf(text, sizeof(text), "%s", given);
  for (char *part; good && (part = strsep(&rest, ",")) != NULL;) {
    uint64_t size = parse_size(part);
    good = size != 0 ? bytes == 0 : ns == 0 && ct_filter_parse_duration(part, &ns, NULL) == 0;
    bytes = size != 0 ? size : bytes;
  }
  bytes = bytes != 0 ? bytes : CT_LAST_BYTES_DEFAULT;
  if (!good || bytes < 1u << 20 || bytes > call->server->options->max_bytes) {
    return mcp_fail(call,
                    "last is a time such as 30s, a size of memory such as 64M (from 1M to %llu bytes), or both with "
                    "a comma; not '%.60s'",
                    (unsigned long long)call->server->options->max_bytes, given);
  }
  options->last_bytes = bytes;
  options->last_ns = ns;
  options->lossless = false;
  return true;
}

static bool
take_recording(struct mcp_call *call, struct mcp_session *session, bool is_lossless)
{
  struct ct_session_options *options = &session->options;
  const json_t *arguments = call->arguments, *lossless = json_object_get(arguments, "lossless");
  options->struct_size = sizeof(*options);
  options->lossless = lossless != NULL ? json_is_true(lossless) : is_lossless;
  options->follow = mcp_get_flag(arguments, "follow");
  options->sources = mcp_get_flag(arguments, "sources");
  options->budget = mcp_get_number(arguments, "budget", 0) / 100;
  session->limit_ms = (uint64_t)(mcp_get_number(arguments, "limit_s", 0) * 1000);
  uint64_t most_ms = call->server->options->max_time_s * 1000;
  if (most_ms != 0 && (session->limit_ms == 0 || session->limit_ms > most_ms)) {
    session->limit_ms = most_ms;
  }
  return take_patterns(call, options) && take_exclusions(call, options) && take_rules(call, session) &&
         take_last(call, options);
}

/* ---- the program ---- */

static bool
find_in_path(const char *name, char *path, size_t size)
{
  const char *list = getenv("PATH");
  for (list = list != NULL ? list : "/bin:/usr/bin"; name[0] != '\0';) {
    size_t length = strcspn(list, ":");
    struct stat info;
    snprintf(path, size, "%.*s%s%s", (int)length, list, length != 0 ? "/" : "", name);
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0) {
      return true;
    }
    if (list[length] == '\0') {
      return false;
    }
    list += length + 1;
  }
  return false;
}

/* Its path, absolute, links as they are; from cwd, if it is given. */
static bool
find_program(struct mcp_call *call, const char *name, const char *cwd, char *path)
{
  char here[PATH_MAX];
  if (strchr(name, '/') == NULL) {
    if (find_in_path(name, path, PATH_MAX)) {
      return true;
    }
    bool is_here = cwd != NULL && snprintf(path, PATH_MAX, "%s/%s", cwd, name) < PATH_MAX && access(path, X_OK) == 0;
    return mcp_fail(call, "there is no program '%.200s' in PATH%s", name,
                    is_here ? "; one is in cwd: give it as ./NAME" : "; give its path");
  }
  if (name[0] != '/' && cwd == NULL && getcwd(here, sizeof(here)) == NULL) {
    return mcp_fail(call, "the server's own directory is gone: give an absolute path");
  }
  if (snprintf(path, PATH_MAX, "%s%s%s",
               name[0] == '/' ? ""
               : cwd != NULL  ? cwd
                              : here,
               name[0] == '/' ? "" : "/", name) >= PATH_MAX) {
    return mcp_fail(call, "the path is too long");
  }
  return access(path, F_OK) == 0 || mcp_fail(call, "there is no program %.300s", path);
}

static bool
take_program(struct mcp_call *call, struct mcp_session *session)
{
  char path[PATH_MAX];
  const json_t *arguments = call->arguments, *env = json_object_get(arguments, "env");
  const char *cwd = mcp_get_text(arguments, "cwd"), *input = mcp_get_text(arguments, "stdin");
  struct mcp_file file;
  struct stat info;
  if (cwd != NULL && (stat(cwd, &info) != 0 || !S_ISDIR(info.st_mode) || cwd[0] != '/')) {
    return mcp_fail(call, "cwd is an absolute path of a directory that there is, not '%.300s'", cwd);
  }
  if (!find_program(call, mcp_get_text(arguments, "program"), cwd, path) || !mcp_allows_program(call, path, &file) ||
      !check_environment(call, env)) {
    return false;
  }
  session->argv = copy_list(json_object_get(arguments, "args"), 1);
  if (session->argv == NULL || (session->argv[0] = strdup(path)) == NULL ||
      (env != NULL && (session->environment = make_environment(env)) == NULL) ||
      (cwd != NULL && (session->working_directory = strdup(cwd)) == NULL) ||
      (input != NULL && (session->input = strdup(input)) == NULL)) {
    return mcp_fail(call, "out of memory");
  }
  session->is_kept = mcp_get_flag(arguments, "keep");
  session->options.environment = session->environment;
  session->options.working_directory = session->working_directory;
  session->options.own_group = true;
  session->options.program_device = file.device;
  session->options.program_inode = file.inode;
  return true;
}

/* No process has the name; perhaps one nearly has it. */
static bool
fail_unnamed(struct mcp_call *call, const char *name)
{
  call->has_target_text = true;
  enum { NAMES_MAX = 4096, NAME_BYTES = 16 };
  char(*names)[NAME_BYTES] = calloc(NAMES_MAX, sizeof(*names));
  const char **words = calloc(NAMES_MAX + 1, sizeof(*words));
  size_t count = 0;
  DIR *processes = opendir("/proc");
  const struct dirent *entry;
  while (processes != NULL && names != NULL && words != NULL && count < NAMES_MAX &&
         (entry = readdir(processes)) != NULL) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%.20s/comm", entry->d_name);
    FILE *file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
    if (file != NULL && fgets(names[count], NAME_BYTES, file) != NULL) {
      names[count][strcspn(names[count], "\n")] = '\0';
      words[count] = names[count];
      count++;
    }
    if (file != NULL) {
      fclose(file);
    }
  }
  if (processes != NULL) {
    closedir(processes);
  }
  const char *closest = words != NULL ? ct_closest_word(name, words) : NULL;
  mcp_fail(call, "there is no process named '%.100s'; %s%s%sgive its id", name, closest != NULL ? "perhaps " : "",
           closest != NULL ? closest : "", closest != NULL ? "; or " : "");
  free(words);
  free(names);
  return false;
}

/* "12 (nginx: master process), ". What tells one from another stands at the end: of a path that is long the folders go.
 */
static void
put_process(FILE *out, pid_t pid)
{
  enum { READ = 4096, WORDS = 60 };
  char path[64], read[READ], *words = read;
  snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
  FILE *file = fopen(path, "re");
  size_t length = file != NULL ? fread(read, 1, READ, file) : 0;
  if (file != NULL) {
    fclose(file);
  }
  for (; length != 0 && (words[length - 1] == '\0' || words[length - 1] == ' '); length--) {
  }
  char *slash = length > WORDS && read[0] == '/' ? memrchr(read, '/', strnlen(read, length)) : NULL;
  if (slash != NULL) {
    length -= (size_t)(slash + 1 - read);
    words = slash + 1;
  }
  length = length < WORDS ? length : WORDS;
  for (size_t i = 0; i < length; i++) {
    words[i] = words[i] == '\0' ? ' ' : words[i];
  }
  fprintf(out, "%d (%.*s)", (int)pid, (int)length, words);
}

/* Several have the name: which of them are there to choose from. */
static bool
fail_ambiguous(struct mcp_call *call, const char *name, const pid_t *pids, size_t shown, size_t count)
{
  char *list = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&list, &size);
  call->has_target_text = true;
  if (out == NULL) {
    return mcp_fail(call, "out of memory");
  }
  for (size_t i = 0; i < count && i < shown; i++) {
    fputs(i == 0 ? "" : ", ", out);
    put_process(out, pids[i]);
  }
  bool is_written = fclose(out) == 0;
  mcp_fail(call, "%zu processes are named '%.100s': %s%s; give the id of one", count, name, is_written ? list : "...",
           is_written && count > shown ? ", ..." : "");
  free(list);
  return false;
}

static bool
take_process(struct mcp_call *call, struct mcp_session *session)
{
  enum { SHOWN = 5 };
  pid_t pids[SHOWN];
  const json_t *process = json_object_get(call->arguments, "process");
  const char *name = json_string_value(process);
  long long number = json_integer_value(process);
  if (name != NULL && name[0] != '\0' && name[strspn(name, "0123456789")] == '\0') {
    number = strtoll(name, NULL, 10);
  } else if (name != NULL) { /* 7z is a name too */
    size_t count = call->server->options->processes_named(name, pids, SHOWN);
    if (count != 1) {
      return count == 0 ? fail_unnamed(call, name) : fail_ambiguous(call, name, pids, SHOWN, count);
    }
    number = pids[0];
  }
  if (number <= 0 || number > INT_MAX || (kill((pid_t)number, 0) != 0 && errno == ESRCH)) {
    return name != NULL ? mcp_fail(call, "there is no process %.100s", name)
                        : mcp_fail(call, "there is no process %lld", number);
  }
  session->pid = (pid_t)number;
  char link[64];
  snprintf(link, sizeof(link), "/proc/%d/exe", (int)session->pid);
  if (readlink(link, session->attached_to, sizeof(session->attached_to) - 1) < 0) {
    snprintf(session->attached_to, sizeof(session->attached_to), "process %d", (int)session->pid);
  }
  return mcp_allows_process(call, session->pid, &session->started);
}

/* ---- the course of both ---- */

/* Which patterns have matched nothing, with what may be meant. */
static void
put_unmatched(struct mcp_call *call, struct mcp_held *held)
{
  struct ct_session *session = mcp_session_enter(call, held);
  char *text = session != NULL ? ct_session_trace_list(session) : NULL;
  json_t *patterns = text != NULL ? json_loads(text, 0, NULL) : NULL, *one, *short_list = json_array();
  size_t i;
  if (session != NULL) {
    mcp_session_leave(held);
  }
  json_array_foreach(patterns, i, one)
  {
    const char *note = mcp_get_text(one, "note");
    json_array_append_new(short_list, json_pack("{s:O, s:O, s:O, s:O?}", "pattern", json_object_get(one, "pattern"),
                                                "matched", json_object_get(one, "matched"), "hooked",
                                                json_object_get(one, "hooked"), "mode", json_object_get(one, "mode")));
    if (mcp_get_count(one, "matched", 1) == 0) {
      mcp_doubt_pattern(call, held->session->pid, mcp_get_text(one, "pattern"), note);
    }
  }
  if (json_array_size(short_list) != 0) {
    mcp_put_some(call, "patterns", json_incref(short_list), SHOWN_PATTERNS);
  }
  json_decref(short_list);
  json_decref(patterns);
  free(text);
}

static void
suggest(struct mcp_call *call, struct mcp_held *held)
{
  const struct mcp_session *s = held->session;
  const char *name = held->name;
  bool is_live = mcp_held_is_live(held);
  if (is_live && s->starts_nothing) {
    mcp_suggest(call, "trace action=add session=%s patterns=[...]: nothing is hooked yet", name);
  }
  if (!is_live && s->status.has_status && s->status.ended && s->status.wait_status != 0 &&
      (s->status.wait_status & 0x7f) != 0) {
    mcp_suggest(call, "analyze view=crash trace=%s", name);
  }
  if (!mcp_suggest_dump(call, held)) {
    mcp_suggest(
        call, is_live ? "analyze view=report trace=%s (it may be asked while it runs)" : "analyze view=report trace=%s",
        name);
  }
  mcp_suggest(
      call, is_live ? "session action=stop session=%s when enough is recorded" : "analyze view=slowest trace=%s", name);
}

/* Where the trace goes: a name that there is nothing of. */
static bool
find_directory(struct mcp_call *call, const char *name, char *path, char *place, int *fd)
{
  const char *given = mcp_get_text(call->arguments, "directory");
  char parent[PATH_MAX] = "/";
  if (given == NULL) {
    /* Of an earlier server in the same --directory there may be some. */
    int length = snprintf(path, PATH_MAX, "%s/%s", call->server->directory, name);
    for (int n = 2; length < PATH_MAX && access(path, F_OK) == 0; n++) {
      length = snprintf(path, PATH_MAX, "%s/%s-%d", call->server->directory, name, n);
    }
    return (length < PATH_MAX && mcp_place(place, path, -1, NULL)) ||
           mcp_fail(call, "the server's directory has too long a name");
  }
  if (given[0] != '/') {
    return mcp_fail(call, "directory is an absolute path, not '%.200s'", given);
  }
  const char *name_in_it = strrchr(given, '/') + 1;
  if (name_in_it - given > 1) {
    snprintf(parent, sizeof(parent), "%.*s", (int)(name_in_it - given) - 1, given);
  }
  if (!mcp_allows_held(call, parent, fd)) {
    return false;
  }
  if (!mcp_place(path, parent, -1, name_in_it) || !mcp_place(place, parent, *fd, name_in_it)) {
    return mcp_fail(call, "the path of the directory is too long");
  }
  return access(place, F_OK) != 0 || mcp_fail(call, "%.300s exists already", path);
}

static bool
choose_directory(struct mcp_call *call, struct mcp_held *held)
{
  char path[PATH_MAX], place[PATH_MAX];
  bool good = find_directory(call, held->name, path, place, &held->place_fd);
  pthread_mutex_lock(&call->server->lock);
  if (good) {
    snprintf(held->directory, sizeof(held->directory), "%s", path);
    snprintf(held->place, sizeof(held->place), "%s", place);
  } else {
    held->session->stage = MCP_FAILED;
  }
  pthread_mutex_unlock(&call->server->lock);
  return good;
}

/* A session whose launch was cancelled just before its answer is stopped likewise. The server's end is no reason: who
 * has the answer may end it at once, and what is kept stays. */
static void
after_answer(struct mcp_call *call, bool is_known)
{
  if (!is_known) {
    mcp_session_stop(call->made, call->made->session->argv != NULL);
  }
  mcp_held_put(call->made);
}

static bool
run_session(struct mcp_call *call, struct mcp_session *session)
{
  struct mcp_held *held = mcp_held_make(call, 's', session, "", -1);
  double seconds = mcp_get_number(call->arguments, "wait_s", 0);
  if (held == NULL) {
    mcp_session_free(session);
    return false;
  }
  const json_t *patterns = json_object_get(call->arguments, "patterns");
  session->starts_nothing = patterns != NULL && json_array_size(patterns) == 0;
  session->options.directory = held->place;
  bool good = choose_directory(call, held) && mcp_session_begin(call, held);
  if (!good) {
    mcp_held_forget(call, held);
    unlink(session->streams[0].path);
    unlink(session->streams[1].path);
    mcp_held_put(held);
    return false;
  }
  bool done = mcp_session_await(call, held, seconds);
  if (!done && mcp_is_cancelled(call->request)) {
    mcp_session_stop(held, session->argv != NULL); /* nobody would know of it */
  }
  if (!done) {
    put_unmatched(call, held);
    call->failed = false; /* it may have ended meanwhile */
    json_object_del(call->body, "error");
  }
  mcp_put_status(call, held);
  if (seconds > 0 && !done) {
    mcp_doubt(call, "it has not ended within wait_s: it goes on");
  }
  mcp_doubts(call, held);
  suggest(call, held);
  call->made = held;
  call->after = after_answer;
  return true;
}

static struct mcp_session *
make_session(struct mcp_call *call)
{
  struct mcp_session *session = calloc(1, sizeof(*session));
  if (session == NULL) {
    mcp_fail(call, "out of memory");
    return NULL;
  }
  for (int i = 0; i < 2; i++) {
    session->streams[i].from = session->streams[i].file = -1;
  }
  session->group.fd = -1;
  return session;
}

bool
mcp_tool_launch(struct mcp_call *call)
{
  struct mcp_session *session = make_session(call);
  if (session == NULL) {
    return false;
  }
  if (!take_program(call, session) || !take_recording(call, session, true)) {
    mcp_session_free(session);
    return false;
  }
  return run_session(call, session);
}

bool
mcp_tool_attach(struct mcp_call *call)
{
  struct mcp_session *session = make_session(call);
  if (session == NULL) {
    return false;
  }
  if (!take_process(call, session) || !take_recording(call, session, false)) {
    mcp_session_free(session);
    return false;
  }
  return run_session(call, session);
}
