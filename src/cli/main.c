/* SPDX-License-Identifier: MIT */
/* The contrail command: the table of commands, help, version. */
#include "cli/command.h"

#include <contrail/text.h>

#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct ct_command *const ct_commands[] = {
    &ct_command_record,   &ct_command_attach,  &ct_command_send,
    &ct_command_receive,  &ct_command_itrace,  &ct_command_debug,
    &ct_command_sessions, &ct_command_status,  &ct_command_top,
    &ct_command_pause,    &ct_command_resume,  &ct_command_stop,
    &ct_command_dump,     &ct_command_mark,    &ct_command_trigger,
    &ct_command_trace,    &ct_command_exclude, &ct_command_plan,
    &ct_command_info,     &ct_command_report,  &ct_command_graph,
    &ct_command_slowest,  &ct_command_replay,  &ct_command_check,
    &ct_command_diff,     &ct_command_sql,     &ct_command_steps,
    &ct_command_output,   &ct_command_mcp,     &ct_command_exclude_list,
    &ct_command_cache,    &ct_command_clean,   &ct_command_recover,
    &ct_command_export,   &ct_command_html,    &ct_command_tui,
    &ct_command_cut,      &ct_command_help,    &ct_command_version,
    NULL,
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

static int
unknown_command(const char *name)
{
  const char *names[sizeof(ct_commands) / sizeof(ct_commands[0])];
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    names[i] = ct_commands[i] != NULL ? ct_commands[i]->name : NULL;
  }
  const char *closest = ct_closest_word(name, names);
  fprintf(stderr, "contrail: unknown command '%s'%s%s%s (contrail help lists the commands)\n", name,
          closest != NULL ? "; perhaps " : "", closest != NULL ? closest : "", closest != NULL ? "?" : "");
  return CT_EXIT_USAGE;
}

static int
overview(void)
{
  puts("usage: contrail COMMAND [OPTION]...\n"
       "\n"
       "Records every function call of a program, with no recompilation, and shows the record.\n");
  for (size_t i = 0; ct_commands[i] != NULL; i++) {
    printf("  %-12s  %s\n", ct_commands[i]->name, ct_commands[i]->summary);
  }
  puts("\n"
       "  contrail record -- PROGRAM ARGS    then    contrail report\n"
       "  contrail help COMMAND              for its options");
  return CT_EXIT_OK;
}

/* ---- help ---- */

struct wanted {
  bool json;
};

static const struct ct_option help_options[] = {
    CT_OPTION_JSON(struct wanted, json,
                   "all commands with their options, as one JSON object; of one command: only that"),
    CT_OPTIONS_END,
};

static int
help_json(const struct ct_command *command)
{
  json_t *list = json_array();
  for (size_t i = 0; ct_commands[i] != NULL; i++) {
    if (command == NULL || command == ct_commands[i]) {
      json_array_append_new(list, ct_command_json(ct_commands[i]));
    }
  }
  json_t *json = json_pack("{s:s, s:o}", "version", ct_version(), "commands", list);
  int failed = json == NULL || json_dumpf(json, stdout, JSON_INDENT(2)) != 0;
  putchar('\n');
  json_decref(json);
  return failed || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
}

static int
run_help(int argc, char **argv)
{
  struct wanted wanted = {false};
  int code = ct_parse(&ct_command_help, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  if (argc - optind > 1) {
    return ct_usage_error(&ct_command_help, "one command at a time, '%s' is too much", argv[optind + 1]);
  }
  const struct ct_command *command = argc > optind ? ct_command_find(argv[optind]) : NULL;
  if (argc > optind && command == NULL) {
    return unknown_command(argv[optind]);
  }
  if (wanted.json) {
    return help_json(command);
  }
  if (command == NULL) {
    return overview();
  }
  ct_print_usage(command);
  return CT_EXIT_OK;
}

static int
run_version(int argc, char **argv)
{
  int code = ct_parse(&ct_command_version, argc, argv, NULL);
  if (code != -1 || (code = ct_no_operands(&ct_command_version, argc, argv)) != CT_EXIT_OK) {
    return code;
  }
  printf("contrail %s\n", ct_version());
  return CT_EXIT_OK;
}

const struct ct_command ct_command_help = {
    .name = "help",
    .summary = "show the commands, or the options of one",
    .synopsis = "[--json] [COMMAND]",
    .options = help_options,
    .operands = CT_COMPLETE_COMMAND,
    .run = run_help,
};

const struct ct_command ct_command_version = {
    .name = "version",
    .summary = "show the version",
    .synopsis = "",
    .run = run_version,
};

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
    return overview();
  }
  if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
    char *version[] = {argv[1], NULL};
    return run_version(1, version);
  }
  const struct ct_command *command = ct_command_find(argv[1]);
  if (command == NULL) {
    return unknown_command(argv[1]);
  }
  return command->run(argc - 1, argv + 1);
}
