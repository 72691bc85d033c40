/* SPDX-License-Identifier: MIT */
/* contrail help: the commands, and what each takes. */
#include "cli/command.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>

int
ct_print_overview(void)
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

struct wanted {
  bool json;
};

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct wanted, json,
                   "print all commands with their options as one JSON object; of one command: only that"),
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
run(int argc, char **argv)
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
    return ct_unknown_command(argv[optind]);
  }
  if (wanted.json) {
    return help_json(command);
  }
  if (command == NULL) {
    return ct_print_overview();
  }
  ct_print_usage(command);
  return CT_EXIT_OK;
}

const struct ct_command ct_command_help = {
    .name = "help",
    .summary = "show the commands, or the options of one",
    .synopsis = "[--json] [COMMAND]",
    .options = options,
    .operands = CT_COMPLETE_COMMAND,
    .run = run,
};
