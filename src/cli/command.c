/* SPDX-License-Identifier: MIT */
/* What the commands share; see command.h. */
#include "cli/command.h"

#include "cli/select.h"

#include <contrail/control.h>
#include <contrail/text.h>
#include <contrail/trace.h>

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
complain(const struct ct_command *command, const char *fmt, va_list ap)
{
  fflush(stdout);
  fprintf(stderr, "contrail %s: ", command->name);
  vfprintf(stderr, fmt, ap);
}

int
ct_usage_error(const struct ct_command *command, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  complain(command, fmt, ap);
  va_end(ap);
  fprintf(stderr, " (see: contrail help %s)\n", command->name);
  return CT_EXIT_USAGE;
}

int
ct_command_failed(const struct ct_command *command, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  complain(command, fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
  return CT_EXIT_FAILED;
}

/* What ct_next_option knows for ct_bad_option. One command is run by a process, and parsed by one thread. */
static const struct option *known_options;
static bool is_repeated;
static bool seen[CT_OPTION_MAX];

static bool
adds_up(int option)
{
  return option == 't' || option == CT_OPTION_EXCLUDE || option == CT_OPTION_EXCLUDE_FROM || option == CT_OPTION_TRACE;
}

int
ct_next_option(int argc, char **argv, const char *short_options, const struct option *options)
{
  known_options = options;
  int got = getopt_long(argc, argv, short_options, options, NULL);
  if (got > 0 && got < CT_OPTION_MAX && got != '?' && got != ':' && optarg != NULL && !adds_up(got)) {
    int key = got == 'f' ? 'F' : got; /* the old letter of --function */
    is_repeated = seen[key];
    seen[key] = true;
    if (is_repeated) {
      optopt = got;
      return '?';
    }
  }
  return got;
}

/* The long form of an option, or NULL. */
static const char *
long_name(int option)
{
  for (const struct option *o = known_options; o != NULL && o->name != NULL; o++) {
    if (o->val == option) {
      return o->name;
    }
  }
  return NULL;
}

static const char *
closest_option(const char *word)
{
  const char *names[CT_OPTION_MAX + 1];
  size_t count = 0;
  for (const struct option *o = known_options; o != NULL && o->name != NULL && count < CT_OPTION_MAX; o++) {
    names[count++] = o->name;
  }
  names[count] = NULL;
  return ct_closest_word(word, names);
}

int
ct_bad_option(const struct ct_command *command, char **argv, int result)
{
  const char *word = argv[optind - 1];
  if (result == ':') {
    return ct_usage_error(command, "option '%s' needs a value", word);
  }
  if (is_repeated) {
    const char *name = long_name(optopt);
    return name != NULL ? ct_usage_error(command, "option '--%s' is given twice", name)
                        : ct_usage_error(command, "option '-%c' is given twice", optopt);
  }
  if (optopt != 0 && strncmp(word, "--", 2) == 0 && strchr(word, '=') != NULL) {
    return ct_usage_error(command, "option '%.*s' takes no value", (int)strcspn(word, "="), word);
  }
  if (optopt != 0) {
    return ct_usage_error(command, "unknown option '-%c'", optopt);
  }
  char name[64];
  snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
  const char *closest = closest_option(name);
  if (closest != NULL) {
    return ct_usage_error(command, "unknown option '%s'; perhaps --%s?", word, closest);
  }
  return ct_usage_error(command, "unknown option '%s'", word);
}

void
ct_old_short_option(const struct ct_command *command, int old, int now, const char *name)
{
  fprintf(stderr,
          "contrail %s: note: -%c is --follow in other commands; here it is -%c or --%s, and -%c for this release\n",
          command->name, old, now, name, old);
}

int
ct_show_usage(const struct ct_command *command)
{
  fputs(command->usage, stdout);
  return CT_EXIT_OK;
}

bool
ct_parse_number(const char *text, uint64_t max, uint64_t *value)
{
  char *end;
  if (text[0] < '0' || text[0] > '9') {
    return false;
  }
  errno = 0;
  unsigned long long n = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || n > max) {
    return false;
  }
  *value = n;
  return true;
}

bool
ct_parse_time(const char *text, enum ct_view_time *time)
{
  if (strcmp(text, "cpu") != 0 && strcmp(text, "wall") != 0) {
    return false;
  }
  *time = text[0] == 'c' ? CT_TIME_CPU : CT_TIME_WALL;
  return true;
}

bool
ct_tid_list_add(struct ct_tid_list *list, const char *text)
{
  uint64_t tid;
  if (!ct_parse_number(text, UINT32_MAX, &tid)) {
    return false;
  }
  uint32_t *tids = reallocarray(list->tids, list->count + 1, sizeof(*tids));
  if (tids == NULL) {
    return false;
  }
  list->tids = tids;
  list->tids[list->count++] = (uint32_t)tid;
  return true;
}

json_t *
ct_json_text(const char *text)
{
  char *clean = ct_utf8_copy(text);
  json_t *json = clean != NULL ? json_string(clean) : NULL;
  free(clean);
  return json;
}

struct ct_control *
ct_open_control(struct ct_session *session)
{
  struct ct_control *control = NULL;
  struct ct_diag diag = {""};
  int code = ct_control_open(session, &control, &diag);
  if (code != CT_OK && code != CT_ESRCH) {
    fprintf(stderr, "contrail: note: contrail sessions will not show this one: %s\n", diag.text);
  }
  return control;
}

const char *
ct_trace_argument(const struct ct_command *command, int argc, char **argv)
{
  if (argc - optind > 1) {
    ct_usage_error(command, "one trace directory at a time, '%s' is too much", argv[optind + 1]);
    return NULL;
  }
  return argc > optind ? argv[optind] : CT_DEFAULT_TRACE;
}

struct ct_trace *
ct_open_trace(const struct ct_command *command, const char *dir)
{
  struct ct_trace *trace;
  struct ct_diag diag = {""};
  signal(SIGPIPE, SIG_IGN);
  int rc = ct_trace_open(dir, &trace, &diag);
  if (rc == 0) {
    return trace;
  }
  if (rc == CT_ENOENT && strcmp(dir, CT_DEFAULT_TRACE) == 0) {
    ct_command_failed(command, "no %s here; give a trace directory, or record one: contrail record -- PROGRAM",
                      CT_DEFAULT_TRACE);
  } else {
    ct_command_failed(command, "%s", diag.text[0] != '\0' ? diag.text : ct_err_text(rc));
  }
  return NULL;
}

void
ct_warn_sources(struct ct_trace *trace)
{
  if (!ct_trace_has_sources(trace)) {
    fprintf(stderr,
            "contrail: the trace does not say where functions are written: no debug information was found, or it "
            "was not recorded with --source\n");
  }
}

int
ct_finish_view(const struct ct_command *command, int rc, const struct ct_view_notes *notes, const struct ct_diag *diag)
{
  if (rc == CT_EIO && errno == EPIPE) {
    return CT_EXIT_OK;
  }
  if (rc != 0) {
    ct_command_failed(command, "%s", diag->text[0] != '\0' ? diag->text : ct_err_text(rc));
    return rc == CT_ERANGE ? CT_EXIT_USAGE : CT_EXIT_FAILED;
  }
  if (notes->damaged_threads == 1) {
    ct_command_failed(command, "the file of thread %u is damaged or cut; what comes before that place is shown",
                      notes->first_damaged_tid);
  } else if (notes->damaged_threads != 0) {
    ct_command_failed(command,
                      "the files of %u threads (the first is %u) are damaged or cut; what comes before is shown",
                      notes->damaged_threads, notes->first_damaged_tid);
  }
  return CT_EXIT_OK;
}

FILE *
ct_view_nowhere(const struct ct_command *command)
{
  FILE *nowhere = fopen("/dev/null", "we");
  if (nowhere == NULL) {
    ct_command_failed(command, "/dev/null: %s", strerror(errno));
  }
  return nowhere;
}

int
ct_report_unmatched(const struct ct_command *command, struct ct_trace *trace, const struct ct_view_filter *filter,
                    const struct ct_view_notes *notes, int rc)
{
  enum { LIKELY = 3 };
  const char *likely[LIKELY];
  if (rc != CT_EXIT_OK || notes->shown != 0 || (filter->function == NULL && filter->module == NULL)) {
    return rc;
  }
  fflush(stdout);
  size_t count = ct_view_matches(trace, filter->function, filter->module, likely, LIKELY);
  const char *glob = filter->function != NULL ? filter->function : filter->module;
  fprintf(stderr, "contrail %s: ", command->name);
  if (count != 0) {
    fprintf(stderr, "nothing: of the functions that match '%s' none was called", glob);
  } else {
    fprintf(stderr, "nothing: no %s matches '%s'%s", filter->function != NULL ? "function" : "module", glob,
            filter->function != NULL && filter->module != NULL ? " in these modules" : "");
  }
  for (size_t i = 0; count == 0 && i < LIKELY && likely[i][0] != '\0'; i++) {
    fputs(i == 0 ? "; perhaps " : ", ", stderr);
    ct_put_printable(stderr, likely[i], 200);
  }
  putc('\n', stderr);
  return filter->strict ? CT_EXIT_FAILED : rc;
}
