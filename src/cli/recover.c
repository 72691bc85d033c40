/* SPDX-License-Identifier: MIT */
/* contrail recover: a trace out of what a recording left that was killed. */
#include "cli/ask.h"

#include <contrail/recover.h>
#include <contrail/text.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The memories found, and which of them is wanted. */
struct search {
  const char *directory; /* the real path of a trace, or NULL */
  pid_t pid;             /* of the process, or 0 */
  size_t count, matches;
  struct ct_recover_memory match; /* the last one, of one whose directory is there if there is such a one */
};

static void
match_memory(void *context, const struct ct_recover_memory *memory)
{
  struct search *search = context;
  bool is_gone = memory->directory_is_gone;
  bool matches = search->directory != NULL ? strcmp(memory->directory, search->directory) == 0 && !is_gone
                 : search->pid != 0        ? memory->pid == search->pid
                                           : true;
  search->count += !is_gone;
  if (matches && (search->matches == 0 || !is_gone)) {
    search->match = *memory;
  }
  search->matches += matches;
}

static void
list_memory(void *context, const struct ct_recover_memory *memory)
{
  (void)context;
  fprintf(stderr, "contrail: of process %d: ", (int)memory->pid);
  ct_put_printable(stderr, memory->directory[0] != '\0' ? memory->directory : memory->path, SIZE_MAX);
  if (memory->directory_is_gone) {
    fputs(", which has gone; this gives its memory back: rm ", stderr);
    ct_put_printable(stderr, memory->path, SIZE_MAX);
  }
  fputc('\n', stderr);
}

static void
print_loss(void *context, const struct ct_recover_loss *loss)
{
  char events[CT_COUNT_CHARS], bytes[CT_DURATION_CHARS];
  (void)context;
  fprintf(stderr, "contrail: thread %u (thread_%u):", loss->tid, loss->index);
  if (loss->events != 0) {
    fprintf(stderr, " %s events are lost%s", ct_format_count(events, loss->events), loss->cut_bytes != 0 ? "," : "");
  }
  if (loss->cut_bytes != 0) {
    fprintf(stderr, " its last block was written in part (%s)", ct_format_bytes(bytes, loss->cut_bytes));
  }
  fputc('\n', stderr);
}

static void
print_report(const struct ct_recover_report *report)
{
  char events[CT_COUNT_CHARS], threads[CT_COUNT_CHARS], other[CT_COUNT_CHARS];
  fprintf(stderr, "contrail: recovered %s events of %s thread%s in ", ct_format_count(events, report->events),
          ct_format_count(threads, report->threads), report->threads == 1 ? "" : "s");
  ct_put_printable(stderr, report->directory, SIZE_MAX);
  if (report->not_kept != 0) {
    fprintf(stderr, "; %s before them were not kept", ct_format_count(other, report->not_kept));
  }
  if (report->missing != 0) {
    fprintf(stderr, "; %s are lost", ct_format_count(other, report->missing));
  }
  if (report->damaged != 0) {
    fprintf(stderr, "; %s pieces of the memory were damaged", ct_format_count(other, report->damaged));
  }
  fputc('\n', stderr);
}

/* The result of a call, after its line. */
static int
finish(int code, const struct ct_recover_report *report, const struct ct_diag *diag)
{
  if (code == CT_OK) {
    print_report(report);
    return CT_EXIT_OK;
  }
  fprintf(stderr, "contrail: %s\n", diag->text);
  return code == CT_ENOENT ? CT_EXIT_OK : CT_EXIT_FAILED;
}

static int
recover_memory(const char *path)
{
  struct ct_recover_report report = {.struct_size = sizeof(report)};
  struct ct_diag diag = {""};
  int code = ct_recover_memory(path, &report, &diag);
  if (code == CT_OK) {
    return finish(code, &report, &diag);
  }
  fprintf(stderr, "contrail: %s\n", diag.text);
  return CT_EXIT_FAILED;
}

/* The process of "PROGRAM-PID" or "PID"; 0: it is neither. */
static pid_t
pid_of(const char *name)
{
  const char *dash = strrchr(name, '-');
  uint64_t pid;
  return ct_parse_number(dash != NULL ? dash + 1 : name, INT32_MAX, &pid) ? (pid_t)pid : 0;
}

static int
recover_named(const char *name)
{
  struct search search = {NULL};
  struct stat status;
  struct ct_diag diag = {""};
  char *real = stat(name, &status) == 0 && S_ISDIR(status.st_mode) ? realpath(name, NULL) : NULL;
  search.directory = real;
  search.pid = real == NULL ? pid_of(name) : 0;
  if (real == NULL && search.pid == 0) {
    return ct_usage_error(&ct_command_recover, "'%s' is neither a trace directory nor a session", name);
  }
  int code = ct_recover_list(match_memory, &search, &diag);
  if (code != CT_OK) {
    code = ct_command_failed(&ct_command_recover, "%s", diag.text);
  } else if (search.matches != 0) {
    code = recover_memory(search.match.path);
  } else if (real != NULL) {
    struct ct_recover_report report = {.struct_size = sizeof(report)};
    code = ct_recover_trace(real, print_loss, NULL, &report, &diag);
    code = finish(code, &report, &diag);
  } else {
    fprintf(stderr, "contrail: no session %s was killed that kept its events in memory\n", name);
    code = CT_EXIT_NO_SESSION;
  }
  free(real);
  return code;
}

static int
run_recover(int argc, char **argv)
{
  struct search search = {NULL};
  struct ct_diag diag = {""};
  int code = ct_parse(&ct_command_recover, argc, argv, NULL);
  if (code != -1) {
    return code;
  }
  if (argc - optind > 1) {
    return ct_usage_error(&ct_command_recover, "one at a time, '%s' is too much", argv[optind + 1]);
  }
  if (argc > optind) {
    return recover_named(argv[optind]);
  }
  if (ct_recover_list(match_memory, &search, &diag) != CT_OK) {
    return ct_command_failed(&ct_command_recover, "%s", diag.text);
  }
  if (search.count == 0) {
    fprintf(stderr, "contrail: there is nothing to recover\n");
    ct_recover_list(list_memory, NULL, NULL);
    return CT_EXIT_OK;
  }
  if (search.count > 1) {
    ct_recover_list(list_memory, NULL, NULL);
    return ct_usage_error(&ct_command_recover, "%zu recordings were killed: which one?", search.count);
  }
  return recover_memory(search.match.path);
}

const struct ct_command ct_command_recover = {
    .name = "recover",
    .summary = "make a trace of what a killed recording left",
    .synopsis = "[DIR|SESSION]",
    .about = "Makes a readable trace of what a killed recording left. A recording with --last leaves its events\n"
             "in memory: they are written into its trace directory, and the memory is given back. Any other\n"
             "trace gets the end that it lacks: incomplete blocks at the ends of files go, whole ones stay. DIR\n"
             "is the trace directory, SESSION an id as contrail sessions showed it, or the process's id. With\n"
             "neither it is the one recording with --last that was killed.\n",
    .operands = CT_COMPLETE_TRACE,
    .run = run_recover,
};
