/* SPDX-License-Identifier: MIT */
/* The contrail command: the table of commands, and the one that is meant. */
#include "cli/command.h"

#include <contrail/text.h>

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct ct_command *const ct_commands[] = {
    &ct_command_record, &ct_command_attach,   &ct_command_send,    &ct_command_receive, &ct_command_itrace,
    &ct_command_debug,  &ct_command_sessions, &ct_command_status,  &ct_command_top,     &ct_command_pause,
    &ct_command_resume, &ct_command_stop,     &ct_command_dump,    &ct_command_mark,    &ct_command_trigger,
    &ct_command_trace,  &ct_command_exclude,  &ct_command_plan,    &ct_command_info,    &ct_command_report,
    &ct_command_graph,  &ct_command_slowest,  &ct_command_replay,  &ct_command_check,   &ct_command_diff,
    &ct_command_sql,    &ct_command_steps,    &ct_command_output,  &ct_command_mcp,     &ct_command_exclude_list,
    &ct_command_cache,  &ct_command_clean,    &ct_command_recover, &ct_command_export,  &ct_command_html,
    &ct_command_tui,    &ct_command_cut,      &ct_command_help,    &ct_command_version, NULL,
};

const struct ct_command *
ct_command_find(const char *name)
{
  for (size_t i = 0; ct_commands[i] != NULL; i++) {
    if (strcmp(ct_commands[i]->name, name) == 0) {
      return ct_commands[i];
    }
  }
  return NULL;
}

/* What other tools call it, or what is an option here. */
static const struct {
  const char *name, *instead;
} otherwise[] = {
    {"callers", "contrail report --callers FUNCTION"},
    {"callees", "contrail report --callees FUNCTION"},
    {"flamegraph", "contrail export --to flamegraph -o FILE"},
    {"list", "contrail sessions, of recordings that run; contrail report, of functions"},
    {"ls", "contrail sessions, of recordings that run; contrail report, of functions"},
    {"script", "contrail replay"},
    {"show", "contrail report, replay or tui"},
    {"stat", "contrail report, or info"},
    {"view", "contrail report, replay or tui"},
};

int
ct_unknown_command(const char *name)
{
  for (size_t i = 0; i < sizeof(otherwise) / sizeof(otherwise[0]); i++) {
    if (strcmp(name, otherwise[i].name) == 0) {
      fprintf(stderr, "contrail: unknown command '%s'; that is: %s\n", name, otherwise[i].instead);
      return CT_EXIT_USAGE;
    }
  }
  const char *names[sizeof(ct_commands) / sizeof(ct_commands[0])];
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    names[i] = ct_commands[i] != NULL ? ct_commands[i]->name : NULL;
  }
  const char *closest = ct_closest_word(name, names);
  fputs("contrail: unknown command '", stderr);
  ct_put_printable(stderr, name, SIZE_MAX);
  fprintf(stderr, "'%s%s%s (contrail help lists the commands)\n", closest != NULL ? "; perhaps " : "",
          closest != NULL ? closest : "", closest != NULL ? "?" : "");
  return CT_EXIT_USAGE;
}

/*
 * A file that we open must not become the standard output that we or the target write to: fill
 * the gaps that the caller left. Close-on-exec, so that the target finds them closed as without us.
 */
static void
fill_standard_files(void)
{
  int fd;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) {
    close(fd);
  }
}

int
main(int argc, char **argv)
{
  fill_standard_files();
  opterr = 0; /* ct_parse says it */
  if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
    return ct_print_overview();
  }
  if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
    char *version[] = {argv[1], NULL};
    return ct_command_version.run(1, version);
  }
  const struct ct_command *command = ct_command_find(argv[1]);
  if (command == NULL) {
    return ct_unknown_command(argv[1]);
  }
  return command->run(argc - 1, argv + 1);
}
