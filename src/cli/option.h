/* SPDX-License-Identifier: MIT */
/*
 * The options of the commands, as tables: parsing, usage texts, completions and the manual page's lists all come from
 * them. `contrail help --json` gives the tables to whoever needs them outside (tools/reference.py).
 */
#ifndef CT_CLI_OPTION_H
#define CT_CLI_OPTION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_command;
struct ct_option;

/* What an option is applied with. */
struct ct_applied {
  const struct ct_command *command; /* for messages */
  const struct ct_option *option;
  const char *value; /* NULL for an option without an argument; lives as long as argv */
  void *member;      /* what lies at the option's offset in the command's structure */
};

struct ct_option {
  const char *name;     /* without "--"; NULL: it has a letter only */
  const char *argument; /* as the usage names it, or NULL: it takes none */
  const char *help;     /* one paragraph; NULL: not shown, and not completed */
  /* CT_EXIT_OK to go on, else the exit code after a message. NULL for a group. */
  int (*apply)(const struct ct_applied *applied);
  const struct ct_option *group; /* in place of all the others: these, in the member at offset */
  size_t offset;
  const char *against;      /* names, separated by blanks, of options that contradict it */
  const char *values;       /* for completions: words separated by blanks, or one of the kinds below */
  const char *const *names; /* for ct_apply_name: by number, NULL where there is none */
  unsigned name_count;
  const char *otherwise; /* its value where an option or nothing follows; NULL: it needs one */
  uint64_t least, most;  /* for ct_apply_count */
  const char *unit;      /* for its message: " (MiB)", " (percent)" */
  char letter;           /* 0: none */
  char old_letter;       /* one more for this release, with a note */
  bool adds_up;          /* may be given several times; others that take an argument may not */
};

#define CT_OPTION_NAMES(table)                                                                                         \
  .names = (table), .name_count = sizeof(table) / sizeof((table)[0]), .apply = ct_apply_name

/* The ends of tables, and groups in them. */
#define CT_OPTIONS_END                                                                                                 \
  {                                                                                                                    \
    0                                                                                                                  \
  }
#define CT_OPTION_GROUP(table, type, where)                                                                            \
  {                                                                                                                    \
    .group = (table), .offset = offsetof(type, where)                                                                  \
  }
#define CT_OPTION_JSON(type, where, text)                                                                              \
  {                                                                                                                    \
    .name = "json", .letter = 'j', .help = (text), .apply = ct_apply_flag, .offset = offsetof(type, where)             \
  }

/* Kinds of values and operands that completions know: what tools/reference.py makes of them is there. */
#define CT_COMPLETE_FILE      "@file"
#define CT_COMPLETE_DIRECTORY "@directory"
#define CT_COMPLETE_TRACE     "@trace"
#define CT_COMPLETE_THREAD    "@thread"
#define CT_COMPLETE_PROCESS   "@process"
#define CT_COMPLETE_SESSION   "@session"
#define CT_COMPLETE_PROGRAM   "@program"
#define CT_COMPLETE_COMMAND   "@command"
#define CT_COMPLETE_PATTERN   "@pattern"
#define CT_COMPLETE_VERB      "@verb"

/*
 * Applies all options of argv to the structure target, and --help (-h), which each command has. -1 to go on, with
 * optind at the first operand; else the exit code, after a message or the usage.
 */
int ct_parse(const struct ct_command *command, int argc, char **argv, void *target);

/* The usual ways to apply an option. Members: bool; const char *; uint32_t and uint64_t from least to most. */
int ct_apply_flag(const struct ct_applied *applied);
int ct_apply_text(const struct ct_applied *applied);
int ct_apply_count32(const struct ct_applied *applied);
int ct_apply_count64(const struct ct_applied *applied);
/* Which of the option's names it is. Member: an enum. */
int ct_apply_name(const struct ct_applied *applied);
/* Which of these names the value is: CT_EXIT_OK, or CT_EXIT_USAGE after a message that names the option's values. */
int ct_applied_word(const struct ct_applied *applied, const char *const *names, unsigned count, unsigned *number);

/* On stdout: usage, about, options, and what follows them. */
void ct_print_usage(const struct ct_command *command);
/* The command with its options; NULL when memory is exhausted. */
json_t *ct_command_json(const struct ct_command *command);

#endif
