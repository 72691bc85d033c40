/* SPDX-License-Identifier: MIT */
/*
 * contrail sql: questions to traces. Without a query on a terminal it asks for them, with history and completion
 * (libedit).
 */
#include "cli/progress.h"
#include "cli/quantity.h"
#include "cli/shown.h"
#include "cli/view.h"

#include <contrail/filter.h>
#include <contrail/sql.h>

#include <editline/readline.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { TERMINAL_ROWS = 100, HISTORY_LINES = 1000, CTRL_D = 4 };

struct wanted {
  bool json, csv, is_limited;
  uint64_t limit;
  double timeout_s; /* 0: none */
  struct ct_look look;
};

static const struct ct_look *look; /* NULL: as JSON or CSV, which nobody colours */
static struct ct_sql *database;    /* for the signal handler and the completion, which get no argument */
static volatile sig_atomic_t is_typing, line_dropped; /* a line is read; Ctrl-C came meanwhile */

/* Of the terminal, while lines are asked for. */
static sigset_t open_signals;   /* the mask while a query runs or a key is waited for */
static bool edits, is_taken;    /* libedit edits lines; the terminal is in the mode for that */
static struct termios own_mode; /* before that */
static int typed_before;        /* bytes not yet read of those that were typed in it */

static int
apply_rows(const struct ct_applied *applied)
{
  struct wanted *wanted = applied->member;
  if (!ct_parse_number(applied->value, UINT64_MAX, &wanted->limit)) {
    return ct_usage_error(applied->command, "'%s' is not a number of rows", applied->value);
  }
  wanted->is_limited = true;
  return CT_EXIT_OK;
}

static int
apply_timeout(const struct ct_applied *applied)
{
  double seconds;
  if (!ct_parse_duration(applied->value, true, &seconds) || seconds > UINT32_MAX) {
    return ct_usage_error(applied->command, "--timeout takes a time such as 10, 0.5, 500ms or 2m, not '%s'",
                          applied->value);
  }
  *(double *)applied->member = seconds;
  return CT_EXIT_OK;
}

/* Anything shorter than the unit of the library is that unit: 0 would be no limit. */
static uint64_t
to_ms(double seconds)
{
  return (uint64_t)ceil(seconds * 1000);
}

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct wanted, json, "print an array of objects"),
    {.name = "csv",
     .help = "print comma separated values",
     .against = "json",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, csv)},
    {.name = "limit",
     .letter = 'n',
     .argument = "N",
     .help = "print at most N rows of each query, 0 for all (default: 100 on a terminal, else all)",
     .apply = apply_rows},
    {.name = "timeout",
     .argument = "SECONDS",
     .help = "end a query that takes longer: 2, 0.5, 500ms",
     .apply = apply_timeout,
     .offset = offsetof(struct wanted, timeout_s)},
    CT_OPTION_GROUP(ct_look_options, struct wanted, look),
    CT_OPTIONS_END,
};

static void
interrupt(int signal)
{
  (void)signal;
  if (is_typing) {
    line_dropped = 1;
  } else if (database != NULL) {
    ct_sql_interrupt(database);
  }
}

static void
report_heading(void *arg, FILE *out)
{
  (void)arg;
  ct_shown_heading(out);
}

/* One text of statements: its rows, and what is to be said of them. */
static int
run_query(const char *text)
{
  struct ct_sql_result result = {.struct_size = sizeof(result)};
  struct ct_diag diag = {""};
  FILE *out = look != NULL ? ct_shown_open_as(CT_SHOWN_TABLE, look, true) : stdout;
  if (out == NULL) {
    return ct_command_failed(&ct_command_sql, "out of memory");
  }
  int code = ct_sql_run(database, text, out, &result, &diag);
  int why = errno;
  ct_shown_close(out);
  if (code == CT_EIO && why == EPIPE && out != stdout) { /* the pager has been left */
    return CT_EXIT_OK;
  }
  if (code != 0) {
    bool is_name = strncmp(diag.text, "no such column", 14) == 0 || strncmp(diag.text, "no such table", 13) == 0;
    return ct_command_failed(&ct_command_sql, "%s%s", diag.text,
                             is_name ? "; .tables lists tables, .schema TABLE columns, given as the query" : "");
  }
  if (result.index_rebuilt) {
    fprintf(stderr, "contrail sql: the index did not fit the trace, or was damaged: it was made again\n");
  }
  if (result.damage[0] != '\0') {
    fflush(stdout);
    ct_command_failed(&ct_command_sql, "DAMAGED: %s", result.damage);
  }
  if (result.more) {
    fflush(stdout);
    fprintf(stderr, "... and more rows; --limit 0 shows all\n");
  }
  return CT_EXIT_OK;
}

/* ---- asking ---- */

static char *
next_word(const char *begun, int state)
{
  static size_t at;
  const char *word;
  if (state == 0) {
    at = 0;
  }
  while ((word = ct_sql_word(at)) != NULL) {
    at++;
    if (strncasecmp(word, begun, strlen(begun)) == 0) {
      return strdup(word);
    }
  }
  return NULL;
}

static char **
complete_word(const char *text, int start, int end)
{
  (void)start;
  (void)end;
  rl_attempted_completion_over = 1;
  return rl_completion_matches(text, next_word);
}

/* What is missing of the directories of a path in the user's own home, from the end of that on. */
static bool
make_directories(char *path, size_t home)
{
  struct stat st;
  char saved = path[home];
  path[home] = '\0';
  bool is_own = stat(path, &st) == 0 && st.st_uid == geteuid();
  path[home] = saved;
  for (char *at = path + home; is_own && (at = strchr(at + 1, '/')) != NULL;) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
  return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* The file of the history, in the user's state directory; false: there is none. */
static bool
history_path(char *path, size_t size)
{
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  bool is_given = state != NULL && state[0] == '/';
  const char *base = is_given ? state : home;
  if (is_given) {
    mkdir(state, 0700); /* it need not be there yet */
  }
  int n = base != NULL ? snprintf(path, size, is_given ? "%s/contrail" : "%s/.local/state/contrail", base) : -1;
  if (n < 0 || (size_t)n + sizeof("/sql_history") > size || !make_directories(path, strlen(base))) {
    return false;
  }
  strcat(path, "/sql_history");
  return true;
}

static void
put_tables(void)
{
  fputs("Tables: spans events functions threads processes modules edges histogram blocks values windows output crash;\n"
        "views: long_spans open_frames lost, slice thread track process;\n"
        "of instructions: steps writes changes vector_changes step_events step_calls blocks, itraced itrace_calls.\n",
        stderr);
}

/*
 * The signals that libedit handles, Ctrl-C's among them, are held back but for where a query runs and where this waits
 * for a key: so none is lost between the prompt and the waiting, or between a line's end and its query's begin, and
 * none finds the terminal's mode half changed. libedit's own handler, which puts that mode back, sends the signal again
 * for ours: then the wait ends twice.
 */
static void
hold_signals(bool hold)
{
  static const int held[] = {SIGINT, SIGTSTP, SIGQUIT, SIGHUP, SIGTERM, SIGCONT, SIGWINCH};
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++) {
    sigaddset(&set, held[i]);
  }
  sigprocmask(hold ? SIG_BLOCK : SIG_SETMASK, hold ? &set : &open_signals, NULL);
}

static void
run_asked(const char *text)
{
  hold_signals(false);
  run_query(text);
  hold_signals(true);
  ct_sql_forget_interrupt(database); /* one that came after the end */
}

static bool
asks_for_columns(const char *line, char *query, size_t size)
{
  char name[64];
  if (sscanf(line, ".schema %63[A-Za-z_]", name) != 1) {
    return false;
  }
  snprintf(query, size, "SELECT * FROM \"%s\" LIMIT 0", name);
  return true;
}

/* The query of the command line, which may be one of those, too. */
static int
run_given(const char *text)
{
  char query[128];
  if (text[0] != '.') {
    return run_query(text);
  }
  if (asks_for_columns(text, query, sizeof(query))) {
    return run_query(query);
  }
  if (strcmp(text, ".tables") != 0 && strcmp(text, ".schema") != 0) {
    return ct_command_failed(&ct_command_sql, "there is no command %s: .tables, .schema TABLE", text);
  }
  put_tables();
  return CT_EXIT_OK;
}

/* A line for who has learned these with sqlite3; false: it asks to end. */
static bool
run_dot(const char *line)
{
  char query[128];
  if (strcmp(line, ".quit") == 0 || strcmp(line, ".exit") == 0) {
    return false;
  }
  if (asks_for_columns(line, query, sizeof(query))) {
    run_asked(query);
  } else if (strcmp(line, ".tables") == 0 || strcmp(line, ".schema") == 0) {
    put_tables();
  } else {
    fputs(strcmp(line, ".help") == 0 ? "" : "contrail sql: there is no such command\n", stderr);
    fputs(".tables, .schema TABLE (its columns), .quit; all else is SQL, up to a semicolon (docs/sql.md).\n"
          "Ctrl-C ends a query that runs, and drops a line that is typed.\n",
          stderr);
  }
  return true;
}

/*
 * libedit puts the terminal into its mode after the prompt is shown. Until then the terminal would read a line of its
 * own: it would show what is typed, Ctrl-C would take back a line that looks entered, and Ctrl-D would become a 0. So
 * this is done before the prompt. What was typed before that, while a query ran, has such zeros yet.
 */
static void
take_terminal(void)
{
  typed_before = 0;
  is_taken = edits && tcgetattr(STDIN_FILENO, &own_mode) == 0;
  if (is_taken) {
    struct termios mode = own_mode;
    mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
    is_taken = tcsetattr(STDIN_FILENO, TCSADRAIN, &mode) == 0;
  }
  if (is_taken && own_mode.c_lflag & ICANON && ioctl(STDIN_FILENO, FIONREAD, &typed_before) != 0) {
    typed_before = 0;
  }
}

static void
give_terminal_back(void)
{
  if (is_taken) {
    tcsetattr(STDIN_FILENO, TCSADRAIN, &own_mode);
  }
}

/* So that a read of keys which Ctrl-C has just taken back returns at once, as libedit's mode does not have it; false:
 * it waits. */
static bool
set_no_wait(int fd)
{
  struct termios mode;
  if (tcgetattr(fd, &mode) != 0 || mode.c_lflag & ICANON) {
    return false;
  }
  if (mode.c_cc[VMIN] != 0 || mode.c_cc[VTIME] != 0) {
    mode.c_cc[VMIN] = mode.c_cc[VTIME] = 0;
    return tcsetattr(fd, TCSANOW, &mode) == 0;
  }
  return true;
}

/* The next byte that is typed; EOF: there is none, or Ctrl-C. */
static int
read_byte(int fd)
{
  struct pollfd key = {.fd = fd, .events = POLLIN};
  for (;;) {
    unsigned char byte;
    bool waits = !set_no_wait(fd);
    int ready = ppoll(&key, 1, NULL, &open_signals);
    if (line_dropped || (ready < 0 && errno != EINTR)) {
      return EOF;
    }
    ssize_t n = ready > 0 ? read(fd, &byte, 1) : -1;
    if (n == 1) {
      bool is_end = typed_before > 0 && byte == 0;
      typed_before -= typed_before > 0;
      return is_end ? CTRL_D : byte;
    }
    if (n == 0 ? waits || key.revents & (POLLHUP | POLLERR) : errno != EINTR && errno != EAGAIN) {
      return EOF;
    }
  }
}

/* The next character that is typed, as libedit wants it; EOF: there is none, or Ctrl-C. */
static int
read_key(FILE *in)
{
  mbstate_t state = {0};
  wchar_t character;
  for (;;) {
    int got = read_byte(fileno(in));
    if (got == EOF) {
      return EOF;
    }
    char byte = (char)got;
    size_t whole = mbrtowc(&character, &byte, 1, &state);
    if (whole == (size_t)-1) { /* not of this locale: left out */
      memset(&state, 0, sizeof(state));
    } else if (whole != (size_t)-2) {
      return whole == 0 ? 0 : (int)character;
    }
  }
}

/* A line; NULL: the end, or Ctrl-C (line_dropped). */
static char *
read_line(const char *prompt)
{
  line_dropped = 0;
  is_typing = 1;
  take_terminal();
  char *line = readline(prompt);
  give_terminal_back();
  is_typing = 0;
  if (line_dropped) {
    putc('\n', stdout);
    free(line);
    line = NULL;
  }
  return line;
}

/* Before libedit looks at the terminal: without an echo it edits nothing, and leaves the mode alone. */
static void
begin_asking(void)
{
  struct termios mode;
  edits = tcgetattr(STDIN_FILENO, &mode) == 0 && mode.c_lflag & ECHO;
  sigprocmask(SIG_BLOCK, NULL, &open_signals);
  sigdelset(&open_signals, SIGINT);
  setlocale(LC_CTYPE, ""); /* so that libedit takes more than ASCII */
  rl_getc_function = read_key;
  using_history();
  stifle_history(HISTORY_LINES);
  rl_attempted_completion_function = complete_word;
}

static int
ask(void)
{
  char path[PATH_MAX], *line, *text = NULL;
  size_t length = 0;
  bool has_history = history_path(path, sizeof(path));
  begin_asking();
  if (has_history) {
    read_history(path);
  }
  put_tables();
  fputs(".schema TABLE shows columns; Ctrl-D ends.\n", stderr);
  hold_signals(true);
  while ((line = read_line(length == 0 ? "sql> " : "...> ")) != NULL || line_dropped) {
    if (line == NULL) {
      length = 0;
      continue;
    }
    size_t bytes = strlen(line);
    if (length == 0 && line[0] == '.') {
      while (bytes != 0 && (line[bytes - 1] == ' ' || line[bytes - 1] == ';')) {
        line[--bytes] = '\0';
      }
      add_history(line);
      bool goes_on = run_dot(line);
      free(line);
      if (!goes_on) {
        break;
      }
      continue;
    }
    char *more = realloc(text, length + bytes + 2);
    if (more == NULL) {
      free(line);
      break;
    }
    text = more;
    memcpy(text + length, line, bytes);
    text[length + bytes] = '\n';
    text[length += bytes + 1] = '\0';
    free(line);
    if (strspn(text, " \t\n") == length) {
      length = 0;
    } else if (ct_sql_is_whole(text)) {
      text[strcspn(text, "\n")] = bytes + 1 == length ? '\0' : '\n';
      add_history(text);
      run_asked(text);
      length = 0;
    }
  }
  putc('\n', stdout);
  if (has_history) {
    write_history(path);
    chmod(path, 0600);
  }
  free(text);
  hold_signals(false);
  return CT_EXIT_OK;
}

/* Statements from standard input. */
static int
run_input(void)
{
  char *text = NULL;
  size_t size = 0;
  ssize_t length = getdelim(&text, &size, '\0', stdin);
  int code = length > 0 ? run_query(text) : CT_EXIT_OK;
  free(text);
  return code;
}

/* ---- the command ---- */

/* A directory, or a piece or a thread of one: DIR@FROM..TO, DIR@window:N, DIR#TID. */
static bool
is_trace(const char *name)
{
  struct ct_trace_form form = {.struct_size = sizeof(form)};
  struct stat st;
  if (ct_trace_form_parse(name, &form, NULL) != CT_OK) {
    return strpbrk(name, " \n;()'") == NULL;
  }
  const char *directory = form.directory[0] != '\0' ? form.directory : CT_DEFAULT_TRACE;
  bool is = stat(directory, &st) == 0 && S_ISDIR(st.st_mode);
  ct_trace_form_free(&form);
  return is;
}

static int
add_trace(const char *name)
{
  char own[PATH_MAX];
  struct ct_diag diag = {""};
  if (name[0] == '@' || name[0] == '#') {
    snprintf(own, sizeof(own), "%s%.1000s", CT_DEFAULT_TRACE, name);
    name = own;
  }
  int code = ct_sql_add(database, name, &diag);
  if (code == CT_EINVAL) {
    return ct_usage_error(&ct_command_sql, "%s", diag.text);
  }
  if (code != CT_OK) {
    ct_command_failed(&ct_command_sql, "%s", diag.text);
    return code == CT_ERANGE ? CT_EXIT_USAGE : CT_EXIT_FAILED;
  }
  return CT_EXIT_OK;
}

/* All operands but a last one that is no directory are traces; that is the query, if there is one. */
static int
add_traces(int argc, char **argv, const char **query)
{
  int end = argc;
  *query = NULL;
  if (argc - optind > 1 && !is_trace(argv[argc - 1])) {
    *query = argv[--end];
  } else if (argc - optind == 1 && !is_trace(argv[optind]) && strpbrk(argv[optind], " \n;") != NULL) {
    *query = argv[--end];
  }
  if (end == optind) {
    return add_trace(CT_DEFAULT_TRACE);
  }
  int code = CT_EXIT_OK;
  for (int i = optind; i < end && code == CT_EXIT_OK; i++) {
    code = add_trace(argv[i]);
  }
  return code;
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.json = false};
  int code = ct_parse(&ct_command_sql, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  struct ct_progress line;
  struct ct_diag diag = {""};
  struct ct_sql_options sql = {
      .struct_size = sizeof(sql),
      .format = wanted.json  ? CT_SQL_JSON
                : wanted.csv ? CT_SQL_CSV
                             : CT_SQL_TABLE,
      .limit = wanted.is_limited       ? wanted.limit
               : isatty(STDOUT_FILENO) ? TERMINAL_ROWS
                                       : 0,
      .timeout_ms = to_ms(wanted.timeout_s),
      .workers = ct_reading_workers(),
      .heading = report_heading,
      .progress = {ct_progress_update, ct_progress_end, &line},
  };
  look = wanted.json || wanted.csv ? NULL : &wanted.look;
  ct_progress_start(&line, "making the index");
  if (ct_sql_open(&sql, &database, &diag) != 0) {
    return ct_command_failed(&ct_command_sql, "%s", diag.text);
  }
  const char *query;
  code = add_traces(argc, argv, &query);
  const char *warning;
  for (size_t i = 0; code == CT_EXIT_OK && (warning = ct_sql_warning(database, i)) != NULL; i++) {
    ct_command_failed(&ct_command_sql, "%s", warning);
  }
  if (code == CT_EXIT_OK) {
    signal(SIGINT, interrupt);
    code = query != NULL ? run_given(query) : isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? ask() : run_input();
    signal(SIGINT, SIG_DFL);
  }
  ct_progress_end(&line);
  struct ct_sql *closing = database;
  database = NULL;
  ct_sql_close(closing);
  return code;
}

const struct ct_command ct_command_sql = {
    .name = "sql",
    .summary = "ask traces questions in SQL",
    .synopsis = "[OPTION]... [TRACE]... ['QUERY']",
    .about = "Queries traces (default " CT_DEFAULT_TRACE ") and the processes that were followed by SQLite's SQL. The\n"
             "tables are spans, functions, edges, threads, events and more; of instructions (contrail itrace)\n"
             "steps, writes, changes, step_calls, blocks (docs/sql.md). Times are in ns. TRACE@FROM..TO,\n"
             "TRACE@window:N and TRACE#TID are a piece, a window and a thread of a trace. Without a query it\n"
             "asks for queries on a terminal, and else reads them from standard input. Nothing is written.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
