/* SPDX-License-Identifier: MIT */
/*
 * See shown.h. A stream of our own takes the view's text a line at a time, colours it, and hands it on to the terminal
 * or to the pager. The pager begins with the first byte, so what is said while a trace is read has gone from the screen
 * by then. Ctrl-C is the pager's while it runs: we end when it does, since what we write then goes nowhere.
 */
#include "cli/shown.h"

#include "cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BOLD   "\033[1m"
#define DIM    "\033[2m"
#define RED    "\033[31m"
#define GREEN  "\033[32m"
#define YELLOW "\033[33m"
#define PLAIN  "\033[m"

struct shown {
  int fd;
  pid_t pager; /* 0: none is running */
  bool pages, paints;
  enum ct_shown_kind kind;
  bool is_heading; /* of a table: the next line */
  char *line;      /* of a line whose end is not there yet */
  size_t length, capacity;
  struct sigaction interrupt, quit; /* as they were */
};

static struct shown *table; /* that is being written; a FILE does not give its cookie */

/* ---- options ---- */

static int
apply_when(const struct ct_applied *applied)
{
  static const char *const words[] = {"auto", "always", "never"};
  for (size_t i = 0; i < 3; i++) {
    if (strcmp(applied->value, words[i]) == 0) {
      *(enum ct_when *)applied->member = (enum ct_when)i;
      return CT_EXIT_OK;
    }
  }
  return ct_usage_error(applied->command, "--color takes auto, always or never, not '%s'", applied->value);
}

static int
apply_names(const struct ct_applied *applied)
{
  bool is_short = strcmp(applied->value, "short") == 0;
  if (!is_short && strcmp(applied->value, "full") != 0) {
    return ct_usage_error(applied->command, "--names takes short or full, not '%s'", applied->value);
  }
  *(enum ct_when *)applied->member = is_short ? CT_WHEN_ALWAYS : CT_WHEN_NEVER;
  return CT_EXIT_OK;
}

const struct ct_option ct_look_options[] = {
    {.name = "color",
     .argument = "WHEN",
     .help = "use colours always, never, or auto (default): on a terminal, if NO_COLOR is not set",
     .values = "auto always never",
     .apply = apply_when,
     .offset = offsetof(struct ct_look, color)},
    {.name = "no-pager",
     .help = "do not use the pager ($PAGER, or less -FRX), which on a terminal shows what is longer than the "
             "screen",
     .apply = ct_apply_flag,
     .offset = offsetof(struct ct_look, no_pager)},
    CT_OPTIONS_END,
};

const struct ct_option ct_names_options[] = {
    {.name = "names",
     .argument = "short|full",
     .help = "print long names of C++ functions without what is in < > (short: std::map<...>::find), or whole "
             "(full). Default: short on a terminal, full elsewhere",
     .values = "short full",
     .apply = apply_names,
     .offset = offsetof(struct ct_look, short_names)},
    CT_OPTIONS_END,
};

static bool
is_terminal(void)
{
  const char *kind = getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && kind != NULL && strcmp(kind, "dumb") != 0;
}

static bool
is_set(const char *variable)
{
  const char *value = getenv(variable);
  return value != NULL && value[0] != '\0';
}

bool
ct_shown_short_names(const struct ct_look *look)
{
  return look->short_names == CT_WHEN_ALWAYS || (look->short_names == CT_WHEN_AUTO && isatty(STDOUT_FILENO) == 1);
}

/* ---- the pager ---- */

static bool
is_in_path(const char *program)
{
  const char *path = getenv("PATH");
  char file[4096];
  for (const char *at = path != NULL ? path : ""; *at != '\0';) {
    size_t length = strcspn(at, ":");
    if (snprintf(file, sizeof(file), "%.*s/%s", (int)length, at, program) < (int)sizeof(file) &&
        access(file, X_OK) == 0) {
      return true;
    }
    at += length + (at[length] == ':');
  }
  return false;
}

/* The pager's command; NULL: none. */
static const char *
pager_command(void)
{
  const char *pager = getenv("PAGER");
  if (pager == NULL) {
    return is_in_path("less") ? "less -FRX" : NULL;
  }
  return pager[0] != '\0' && strcmp(pager, "cat") != 0 ? pager : NULL;
}

static void
run_pager(const char *command, int fd)
{
  dup2(fd, STDIN_FILENO);
  setenv("LESS", "FRX", 0);
  setenv("LV", "-c", 0);
  execl("/bin/sh", "sh", "-c", command, (char *)NULL);
  _exit(127);
}

/* Without one, when it cannot be started. */
static void
start_pager(struct shown *shown)
{
  const char *command = pager_command();
  int ends[2];
  shown->pages = false;
  if (command == NULL || pipe2(ends, O_CLOEXEC) != 0) {
    return;
  }
  pid_t pid = fork();
  if (pid == 0) {
    run_pager(command, ends[0]);
  }
  close(ends[0]);
  if (pid < 0) {
    close(ends[1]);
    return;
  }
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  sigaction(SIGINT, &ignore, &shown->interrupt);
  sigaction(SIGQUIT, &ignore, &shown->quit);
  signal(SIGPIPE, SIG_IGN);
  shown->pager = pid;
  shown->fd = ends[1];
}

static void
end_pager(struct shown *shown)
{
  int status = 0;
  if (shown->pager == 0) {
    return;
  }
  close(shown->fd);
  while (waitpid(shown->pager, &status, 0) < 0 && errno == EINTR) {
  }
  sigaction(SIGINT, &shown->interrupt, NULL);
  sigaction(SIGQUIT, &shown->quit, NULL);
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 126)) {
    fprintf(stderr, "contrail: the pager '%s' cannot be run; --no-pager shows without it\n", pager_command());
  }
  shown->pager = 0;
}

/* ---- writing ---- */

/* False: it cannot be written; errno says why. */
static bool
put(struct shown *shown, const char *text, size_t length)
{
  while (length != 0) {
    ssize_t n = write(shown->fd, text, length);
    if (n < 0 && errno != EINTR) {
      return false;
    }
    text += n > 0 ? n : 0;
    length -= n > 0 ? (size_t)n : 0;
  }
  return true;
}

static bool
put_in(struct shown *shown, const char *color, const char *text, size_t length)
{
  return length == 0 ||
         (put(shown, color, strlen(color)) && put(shown, text, length) && put(shown, PLAIN, strlen(PLAIN)));
}

static bool
begins(const char *line, size_t length, const char *word)
{
  return length >= strlen(word) && memcmp(line, word, strlen(word)) == 0;
}

/* A heading of a table, a warning, a note after " -- ", what the program wrote. Without its end. */
static bool
paint(struct shown *shown, const char *line, size_t length)
{
  size_t blanks = 0;
  while (blanks < length && line[blanks] == ' ') {
    blanks++;
  }
  const char *text = line + blanks;
  size_t rest = length - blanks;
  static const char *const headings[] = {"total ",  "self ",    "time (s)", "%  ",
                                         "after  ", "before  ", "calls  ",  "off "};
  for (size_t i = 0; blanks > 2 && i < sizeof(headings) / sizeof(headings[0]); i++) {
    if (begins(text, rest, headings[i])) {
      return put_in(shown, BOLD, line, length);
    }
  }
  if (begins(line, length, "DAMAGED") || begins(line, length, "FAIL") || begins(line, length, "warning") ||
      begins(line, length, "signal ")) {
    return put_in(shown, RED, line, length);
  }
  if (begins(line, length, "... and ")) {
    return put_in(shown, DIM, line, length);
  }
  const char *note = memmem(line, length, " -- ", 4), *output = memmem(line, length, "  stdout | ", 11);
  const char *errors = memmem(line, length, "  stderr | ", 11), *at = note;
  const char *color = YELLOW;
  if (output != NULL || errors != NULL) {
    at = output != NULL ? output : errors;
    color = output != NULL ? GREEN : RED;
  }
  if (at == NULL) {
    return put(shown, line, length);
  }
  return put(shown, line, (size_t)(at - line)) && put_in(shown, color, at, length - (size_t)(at - line));
}

/* The number of a step, after it what views have. */
static bool
paint_step(struct shown *shown, const char *line, size_t length)
{
  size_t digits = 0;
  while (digits < length && (line[digits] == ' ' || (line[digits] >= '0' && line[digits] <= '9'))) {
    digits++;
  }
  bool has_number = digits > 0 && line[digits - 1] == ' ' && memmem(line, digits, "  ", 2) != NULL;
  const char *note = memmem(line, length, " -- ", 4);
  if (note != NULL) {
    return put(shown, line, (size_t)(note - line)) && put_in(shown, YELLOW, note, length - (size_t)(note - line));
  }
  return has_number ? put_in(shown, DIM, line, digits) && put(shown, line + digits, length - digits)
                    : put(shown, line, length);
}

static bool
paint_line(struct shown *shown, const char *line, size_t length)
{
  if (shown->kind == CT_SHOWN_VIEW) {
    return paint(shown, line, length);
  }
  if (shown->kind == CT_SHOWN_STEPS) {
    return paint_step(shown, line, length);
  }
  if (shown->kind == CT_SHOWN_PLAN) {
    bool is_refused =
        memmem(line, length, "  -     -        ", 17) != NULL || memmem(line, length, " not hooked: ", 13) != NULL;
    return is_refused ? put_in(shown, YELLOW, line, length) : put(shown, line, length);
  }
  bool is_heading = shown->is_heading;
  shown->is_heading = false;
  return is_heading ? put_in(shown, BOLD, line, length) : put(shown, line, length);
}

static bool
keep(struct shown *shown, const char *text, size_t length)
{
  if (shown->length + length > shown->capacity) {
    size_t capacity = (shown->length + length) * 2;
    char *more = realloc(shown->line, capacity);
    if (more == NULL) {
      return false;
    }
    shown->line = more;
    shown->capacity = capacity;
  }
  memcpy(shown->line + shown->length, text, length);
  shown->length += length;
  return true;
}

static ssize_t
write_shown(void *cookie, const char *text, size_t size)
{
  struct shown *shown = cookie;
  if (shown->pages && size != 0) {
    start_pager(shown);
  }
  if (!shown->paints) {
    return put(shown, text, size) ? (ssize_t)size : 0;
  }
  for (size_t at = 0; at < size;) {
    const char *end = memchr(text + at, '\n', size - at);
    size_t length = end != NULL ? (size_t)(end - text) - at : size - at;
    bool is_done = keep(shown, text + at, length);
    if (is_done && end != NULL) {
      is_done = paint_line(shown, shown->line, shown->length) && put(shown, "\n", 1);
      shown->length = 0;
    }
    if (!is_done) {
      return 0;
    }
    at += length + (end != NULL);
  }
  return (ssize_t)size;
}

static int
close_shown(void *cookie)
{
  struct shown *shown = cookie;
  bool is_done = shown->length == 0 || paint_line(shown, shown->line, shown->length);
  end_pager(shown);
  table = table == shown ? NULL : table;
  free(shown->line);
  free(shown);
  return is_done ? 0 : EOF;
}

FILE *
ct_shown_open(const struct ct_look *look, bool may_page)
{
  return ct_shown_open_as(CT_SHOWN_VIEW, look, may_page);
}

FILE *
ct_shown_open_as(enum ct_shown_kind kind, const struct ct_look *look, bool may_page)
{
  bool pages = may_page && !look->no_pager && is_terminal() && pager_command() != NULL;
  bool paints = look->color == CT_WHEN_ALWAYS || (look->color == CT_WHEN_AUTO && is_terminal() && !is_set("NO_COLOR"));
  if (!pages && !paints) {
    return stdout;
  }
  struct shown *shown = calloc(1, sizeof(*shown));
  if (shown == NULL) {
    return NULL;
  }
  *shown = (struct shown){.fd = STDOUT_FILENO, .pages = pages, .paints = paints, .kind = kind};
  FILE *out = fopencookie(shown, "w", (cookie_io_functions_t){.write = write_shown, .close = close_shown});
  if (out == NULL) {
    free(shown);
  } else if (kind == CT_SHOWN_TABLE) {
    table = shown;
  }
  return out;
}

void
ct_shown_heading(FILE *out)
{
  fflush(out);
  if (table != NULL) {
    table->is_heading = true;
  }
}

void
ct_shown_close(FILE *out)
{
  if (out != NULL && out != stdout) {
    fclose(out);
  }
}
