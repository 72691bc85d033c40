/* SPDX-License-Identifier: MIT */
/* See option.h. The words are taken apart by getopt_long, from arrays that are made of the tables. */
#include "cli/option.h"

#include "cli/command.h"

#include <contrail/text.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
  OPTIONS_MAX = 64,  /* of one command; checked */
  FIRST_VALUE = 256, /* what getopt_long returns for the first option: above all letters */
  TEXT_COLUMN = 27,
  TEXT_WIDTH = 92
};

/* One option of a command, out of its groups. */
struct row {
  const struct ct_option *option;
  char *base; /* of the structure or member that its offset is of; NULL while nothing is parsed */
  bool given;
};

struct rows {
  struct row row[OPTIONS_MAX];
  int count;
};

static const struct ct_option help_option = {.name = "help", .letter = 'h'};

static void
add_rows(struct rows *rows, const struct ct_option *options, char *base)
{
  for (const struct ct_option *o = options; o != NULL && (o->apply != NULL || o->group != NULL); o++) {
    if (o->group != NULL) {
      add_rows(rows, o->group, base != NULL ? base + o->offset : NULL);
    } else if (rows->count < OPTIONS_MAX) {
      rows->row[rows->count++] = (struct row){.option = o, .base = base};
    }
  }
}

static struct rows
rows_of(const struct ct_command *command, void *target)
{
  struct rows rows = {.count = 0};
  add_rows(&rows, command->options, target);
  if (rows.count < OPTIONS_MAX) {
    rows.row[rows.count++] = (struct row){.option = &help_option};
  }
  return rows;
}

/* ---- parsing ---- */

/* The arrays of getopt_long; returns what its short options begin with. */
static void
to_getopt(const struct rows *rows, bool stops_at_operand, struct option *longs, char *shorts)
{
  *shorts++ = stops_at_operand ? '+' : '-';
  if (!stops_at_operand) {
    shorts--; /* operands may stand among options: getopt_long moves them to the end */
  }
  *shorts++ = ':';
  for (int i = 0; i < rows->count; i++) {
    const struct ct_option *option = rows->row[i].option;
    if (option->name != NULL) {
      *longs++ = (struct option){option->name, option->argument != NULL, NULL, FIRST_VALUE + i};
    }
    for (int n = 0; n < 2; n++) {
      char letter = n == 0 ? option->letter : option->old_letter;
      if (letter != 0) {
        *shorts++ = letter;
        if (option->argument != NULL) {
          *shorts++ = ':';
        }
      }
    }
  }
  *longs = (struct option){0};
  *shorts = '\0';
}

static struct row *
row_of(struct rows *rows, int got)
{
  if (got >= FIRST_VALUE) {
    return &rows->row[got - FIRST_VALUE];
  }
  for (int i = 0; i < rows->count; i++) {
    if (got == rows->row[i].option->letter || got == rows->row[i].option->old_letter) {
      return &rows->row[i];
    }
  }
  return NULL;
}

/* The options that begin so, "--sort or --source", when there are several; or the one that is most like it. */
static int
unknown_long(const struct ct_command *command, const struct rows *rows, const char *word)
{
  const char *names[OPTIONS_MAX + 1];
  size_t count = 0, length = strcspn(word + 2, "="), fits = 0, at = 0;
  char name[64], list[200] = "";
  snprintf(name, sizeof(name), "%.*s", (int)length, word + 2);
  for (int i = 0; i < rows->count; i++) {
    const struct ct_option *option = rows->row[i].option;
    if (option->name != NULL && (option->help != NULL || option == &help_option)) {
      names[count++] = option->name;
      if (length != 0 && strncmp(option->name, word + 2, length) == 0 && at < sizeof(list)) {
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s--%s", fits++ == 0 ? "" : ", ", option->name);
      }
    }
  }
  names[count] = NULL;
  if (fits > 1) {
    return ct_usage_error(command, "option '%s' may be one of %s", word, list);
  }
  const char *closest = ct_closest_word(name, names);
  return closest != NULL ? ct_usage_error(command, "unknown option '%s'; perhaps --%s?", word, closest)
                         : ct_usage_error(command, "unknown option '%s'", word);
}

/* What getopt_long has refused: it returned '?' or ':'. */
static int
refused(const struct ct_command *command, const struct rows *rows, char **argv, int got)
{
  const char *word = argv[optind - 1];
  if (got == ':') {
    return ct_usage_error(command, "option '%s' needs a value", word);
  }
  if (optopt >= FIRST_VALUE) {
    return ct_usage_error(command, "option '%.*s' takes no value", (int)strcspn(word, "="), word);
  }
  return optopt != 0 ? ct_usage_error(command, "unknown option '-%c'", optopt) : unknown_long(command, rows, word);
}

/* Whether name is one of the words of list, which blanks separate. */
static bool
is_among(const char *list, const char *name)
{
  size_t length = strlen(name);
  for (const char *at = list; at != NULL && *at != '\0';) {
    size_t word = strcspn(at, " ");
    if (word == length && strncmp(at, name, length) == 0) {
      return true;
    }
    at += word + strspn(at + word, " ");
  }
  return false;
}

static bool
contradicts(const struct ct_option *a, const struct ct_option *b)
{
  return a->name != NULL && b->name != NULL && (is_among(a->against, b->name) || is_among(b->against, a->name));
}

static int
apply(const struct ct_command *command, struct rows *rows, struct row *row, const char *value)
{
  const struct ct_option *option = row->option;
  if (row->given && option->argument != NULL && !option->adds_up) {
    return ct_usage_error(command, "option '--%s' is given twice", option->name);
  }
  row->given = true;
  for (int i = 0; i < rows->count; i++) {
    if (rows->row[i].given && contradicts(option, rows->row[i].option)) {
      return ct_usage_error(command, "--%s and --%s contradict each other", rows->row[i].option->name, option->name);
    }
  }
  struct ct_applied applied = {
      .command = command, .option = option, .value = value, .member = row->base + option->offset};
  return option->apply(&applied);
}

/* Whether a word that stands where a value is wanted is another option, or the end of them. */
static bool
is_option(struct rows *rows, const char *word)
{
  return word[0] == '-' && (word[1] == '-' || (word[1] != '\0' && word[2] == '\0' && row_of(rows, word[1]) != NULL));
}

/* The value of an option: what follows it, or, where that is an option, what stands for none. NULL after a message. */
static const char *
value_of(const struct ct_command *command, struct rows *rows, const struct ct_option *option, char **argv)
{
  if (option->argument == NULL || optarg != argv[optind - 1] || !is_option(rows, optarg)) {
    return optarg;
  }
  if (option->otherwise != NULL) {
    optind--; /* it comes next */
    return option->otherwise;
  }
  ct_usage_error(command, "option '--%s' needs a value, and '%s' looks like an option: --%s=%s if that is meant",
                 option->name, optarg, option->name, optarg);
  return NULL;
}

int
ct_parse(const struct ct_command *command, int argc, char **argv, void *target)
{
  struct rows rows = rows_of(command, target);
  struct option longs[OPTIONS_MAX + 1];
  char shorts[OPTIONS_MAX * 4 + 3];
  to_getopt(&rows, command->stops_at_operand, longs, shorts);
  int got;
  while ((got = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
    struct row *row = got == '?' ? NULL : row_of(&rows, got == ':' ? optopt : got);
    bool is_last = got == ':' && row != NULL && row->option->otherwise != NULL; /* nothing follows it */
    if (got == '?' || (got == ':' && !is_last)) {
      return refused(command, &rows, argv, got);
    }
    if (row->option == &help_option) {
      ct_print_usage(command);
      return CT_EXIT_OK;
    }
    const char *value = is_last ? row->option->otherwise : value_of(command, &rows, row->option, argv);
    if (value == NULL && row->option->argument != NULL) {
      return CT_EXIT_USAGE;
    }
    int code = apply(command, &rows, row, value);
    if (got == row->option->old_letter && code != CT_EXIT_USAGE) {
      const char short_form[] = {'-', row->option->letter, ' ', 'o', 'r', ' ', '\0'};
      fprintf(stderr, "contrail %s: note: -%c is --follow in other commands; here use %s--%s\n", command->name, got,
              row->option->letter != 0 ? short_form : "", row->option->name);
    }
    if (code != CT_EXIT_OK) {
      return code;
    }
  }
  return -1;
}

/* ---- the usual ways to apply an option ---- */

int
ct_apply_flag(const struct ct_applied *applied)
{
  *(bool *)applied->member = true;
  return CT_EXIT_OK;
}

int
ct_apply_text(const struct ct_applied *applied)
{
  *(const char **)applied->member = applied->value;
  return CT_EXIT_OK;
}

static int
parse_count(const struct ct_applied *applied, uint64_t *number)
{
  const struct ct_option *option = applied->option;
  const char *unit = option->unit != NULL ? option->unit : "";
  if (ct_parse_number(applied->value, option->most, number) && *number >= option->least) {
    return CT_EXIT_OK;
  }
  if (option->most >= UINT32_MAX) {
    return ct_usage_error(applied->command, "--%s takes a number%s, not '%s'", option->name, unit, applied->value);
  }
  return ct_usage_error(applied->command, "--%s takes %" PRIu64 " to %" PRIu64 "%s, not '%s'", option->name,
                        option->least, option->most, unit, applied->value);
}

int
ct_apply_count32(const struct ct_applied *applied)
{
  uint64_t number;
  int code = parse_count(applied, &number);
  if (code == CT_EXIT_OK) {
    *(uint32_t *)applied->member = (uint32_t)number;
  }
  return code;
}

int
ct_apply_count64(const struct ct_applied *applied)
{
  uint64_t number;
  int code = parse_count(applied, &number);
  if (code == CT_EXIT_OK) {
    *(uint64_t *)applied->member = number;
  }
  return code;
}

int
ct_applied_word(const struct ct_applied *applied, const char *const *names, unsigned count, unsigned *number)
{
  for (unsigned i = 0; i < count; i++) {
    if (names[i] != NULL && strcmp(applied->value, names[i]) == 0) {
      *number = i;
      return CT_EXIT_OK;
    }
  }
  return ct_usage_error(applied->command, "--%s '%s' is none of: %s", applied->option->name, applied->value,
                        applied->option->values);
}

int
ct_apply_name(const struct ct_applied *applied)
{
  unsigned number = 0;
  int code = ct_applied_word(applied, applied->option->names, applied->option->name_count, &number);
  if (code == CT_EXIT_OK) {
    memcpy(applied->member, &number, sizeof(number)); /* enums without negative values are unsigned */
  }
  return code;
}

/* ---- the usage ---- */

/* Words of text from column TEXT_COLUMN on; the cursor is at column at. */
static void
print_wrapped(const char *text, int at)
{
  for (bool first = true; *text != '\0'; first = false) {
    int length = (int)strcspn(text, " ");
    if (at > TEXT_COLUMN - (first ? 0 : 1) && at + 1 + length > TEXT_WIDTH) {
      printf("\n%*s", TEXT_COLUMN, "");
      at = TEXT_COLUMN;
    } else if (!first) {
      putchar(' ');
      at++;
    }
    printf("%.*s", length, text);
    at += length;
    text += length + strspn(text + length, " ");
  }
  putchar('\n');
}

static void
print_option(const struct ct_option *option)
{
  char head[80];
  int length = option->letter != 0 ? snprintf(head, sizeof(head), "  -%c, --%s", option->letter, option->name)
                                   : snprintf(head, sizeof(head), "      --%s", option->name);
  if (option->argument != NULL) {
    length += snprintf(head + length, sizeof(head) - (size_t)length, " %s", option->argument);
  }
  fputs(head, stdout);
  if (length + 2 > TEXT_COLUMN) {
    putchar('\n');
    length = 0;
  }
  printf("%*s", TEXT_COLUMN - length, "");
  print_wrapped(option->help, TEXT_COLUMN);
}

void
ct_print_usage(const struct ct_command *command)
{
  struct rows rows = rows_of(command, NULL);
  const char *line = command->synopsis;
  for (bool first = true; first || *line != '\0'; first = false) {
    int length = (int)strcspn(line, "\n");
    printf("%s contrail %s%s%.*s\n", first ? "usage:" : "      ", command->name, length != 0 ? " " : "", length, line);
    line += length + (line[length] == '\n');
  }
  if (command->about != NULL) {
    printf("\n%s", command->about);
  }
  for (int i = 0, shown = 0; i < rows.count; i++) {
    if (rows.row[i].option->help != NULL) {
      fputs(shown++ == 0 ? "\n" : "", stdout);
      print_option(rows.row[i].option);
    }
  }
  if (command->closing != NULL) {
    printf("\n%s", command->closing);
  }
}

/* ---- the tables, for tools outside ---- */

static json_t *
words_json(const char *text, const char *separators)
{
  json_t *words = json_array();
  while (text != NULL && *text != '\0') {
    size_t length = strcspn(text, separators);
    json_array_append_new(words, json_stringn(text, length));
    text += length + strspn(text + length, separators);
  }
  return words;
}

static json_t *
option_json(const struct ct_option *option)
{
  char letter[2] = {option->letter, '\0'};
  json_t *json = json_pack("{s:s, s:s*, s:s*, s:s, s:o, s:b}", "name", option->name, "letter",
                           option->letter != 0 ? letter : NULL, "argument", option->argument, "help", option->help,
                           "against", words_json(option->against, " "), "adds_up", option->adds_up);
  if (option->argument != NULL) {
    json_object_set_new(json, "values", words_json(option->values, " "));
  }
  return json;
}

json_t *
ct_command_json(const struct ct_command *command)
{
  struct rows rows = rows_of(command, NULL);
  json_t *options = json_array();
  for (int i = 0; i < rows.count; i++) {
    const struct ct_option *option = rows.row[i].option;
    if (option->help != NULL) {
      json_array_append_new(options, option_json(option));
    }
  }
  return json_pack("{s:s, s:s, s:o, s:s*, s:s*, s:o, s:b, s:o}", "name", command->name, "summary", command->summary,
                   "synopsis", words_json(command->synopsis, "\n"), "about", command->about, "closing",
                   command->closing, "operands", words_json(command->operands, " "), "stops_at_operand",
                   command->stops_at_operand, "options", options);
}
