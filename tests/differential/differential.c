/* SPDX-License-Identifier: MIT */
/*
 * The engine against the processor: what displaced code does is compared with what the same code does where it belongs.
 *
 *   differential [--seed N] [--cases N] [--percent N] [--seconds N] [--case N] [--part NAME] [FILE...]
 *
 * --case runs one case of the seed and part again, as a failure says. FILEs stand in place of the usual libraries.
 */
#include "calls.h"
#include "effects.h"
#include "emulated.h"
#include "entries.h"
#include "steps.h"
#include "translated.h"
#include "windows.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PATHS_MAX = 32, TEXT_BYTES = 4096, SHOWN_MAX = 5 };

struct options {
  uint64_t seed;
  uint64_t cases;   /* 0: the part's own number */
  uint64_t percent; /* so much of that */
  double seconds;   /* 0: as many cases as there are */
  int64_t only;
  const char *part;
  const char *paths[PATHS_MAX];
  size_t path_count;
};

/* All cases of a part are told from each other by their number, so that a share of them is the first of them. */
static uint64_t
cases_of(const struct options *options, uint64_t usual)
{
  return options->cases != 0 ? options->cases : usual * options->percent / 100;
}

static double
now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- windows ---- */

static int
run_windows(const struct options *options)
{
  static char text[TEXT_BYTES];
  struct windows_count count = {0};
  uint64_t bad = 0, cases = cases_of(options, 25000);
  double begin = now();
  if (windows_set_up(options->paths, options->path_count) != 0) {
    printf("skip windows: none of the files can be mapped\n");
    return -1;
  }
  for (uint64_t i = 0; options->seconds != 0 ? now() - begin < options->seconds : i < cases; i++) {
    uint64_t number = options->only >= 0 ? (uint64_t)options->only : i;
    if (windows_case(options->seed, number, &count, text, sizeof(text)) == CASE_DIFFERS && bad++ < SHOWN_MAX) {
      printf("FAIL windows --seed %llu --case %llu: %s", (unsigned long long)options->seed, (unsigned long long)number,
             text);
    }
    if (options->only >= 0) {
      break;
    }
  }
  windows_tear_down();
  printf("%s windows: %llu same, %llu differ, %llu not run (faults %llu, branches %llu, rip-relative %llu, calls %llu, "
         "VEX %llu, EVEX %llu, strings %llu)\n",
         bad != 0 ? "FAIL" : "ok  ", (unsigned long long)count.same, (unsigned long long)bad,
         (unsigned long long)count.skipped, (unsigned long long)count.faults, (unsigned long long)count.branches,
         (unsigned long long)count.rip_relative, (unsigned long long)count.calls, (unsigned long long)count.vex,
         (unsigned long long)count.evex, (unsigned long long)count.strings);
  return bad != 0 || (count.same == 0 && options->only < 0);
}

/* ---- entries ---- */

static int
run_entries(const struct options *options)
{
  static char text[TEXT_BYTES];
  struct entries_count count = {{0}};
  uint64_t bad = 0, cases = cases_of(options, 4000);
  double begin = now();
  if (entries_set_up(options->paths, options->path_count, text, sizeof(text)) != 0) {
    printf("FAIL entries: %s\n", text[0] != 0 ? text : "none of the files can be mapped and patched");
    return 1;
  }
  for (uint64_t i = 0; options->seconds != 0 ? now() - begin < options->seconds : i < cases; i++) {
    uint64_t number = options->only >= 0 ? (uint64_t)options->only : i;
    if (entries_case(options->seed, number, &count, text, sizeof(text)) == CASE_DIFFERS && bad++ < SHOWN_MAX) {
      printf("FAIL entries --seed %llu --case %llu: %s", (unsigned long long)options->seed, (unsigned long long)number,
             text);
    }
    if (options->only >= 0) {
      break;
    }
  }
  entries_tear_down();
  printf("%s entries: %llu same, %llu differ, %llu not run (", bad != 0 ? "FAIL" : "ok  ",
         (unsigned long long)count.same, (unsigned long long)bad, (unsigned long long)count.skipped);
  for (int t = CT_TACTIC_JUMP; t < CT_TACTIC_COUNT; t++) {
    printf("%s %llu, ", ct_tactic_name((enum ct_tactic)t), (unsigned long long)count.tactic[t]);
  }
  printf("moved out %llu, returns %llu, enter only %llu, tail calls %llu, slow %llu, faults %llu)\n",
         (unsigned long long)count.evicted, (unsigned long long)count.returns, (unsigned long long)count.enter_only,
         (unsigned long long)count.tails, (unsigned long long)count.slow, (unsigned long long)count.faults);
  return bad != 0 || (count.same == 0 && options->only < 0);
}

/* ---- calls ---- */

static int
run_calls(const struct options *options)
{
  struct calls_count count = {0};
  uint64_t from = options->only >= 0 ? (uint64_t)options->only : 0;
  uint64_t to = options->only >= 0 ? from + 1 : cases_of(options, 20000);
  int64_t bad = calls_run(options->seed, from, to, options->only >= 0 ? 0 : options->seconds, &count);
  if (bad < 0) {
    printf("skip calls: no library with a known function\n");
    return -1;
  }
  printf(
      "%s calls: %llu same, %lld differ (%llu functions; %llu hooked in their libraries, %llu events, %llu faults)\n",
      bad != 0 ? "FAIL" : "ok  ", (unsigned long long)count.same, (long long)bad, (unsigned long long)count.functions,
      (unsigned long long)count.hooked, (unsigned long long)count.events, (unsigned long long)count.faults);
  return bad != 0;
}

/* ---- the emulator ---- */

static int
run_emulated(const struct options *options)
{
  static char text[TEXT_BYTES];
  struct emulated_count count = {0};
  uint64_t bad = 0, cases = options->cases != 0 ? options->cases : 80000;
  double begin = now();
  if (emulated_set_up() != 0) {
    printf("skip emulated: no code can be made here\n");
    return -1;
  }
  for (uint64_t i = 0; options->seconds != 0 ? now() - begin < options->seconds : i < cases; i++) {
    uint64_t number = options->only >= 0 ? (uint64_t)options->only : i;
    if (emulated_case(options->seed, number, &count, text, sizeof(text)) && bad++ < SHOWN_MAX) {
      printf("FAIL emulated --seed %llu --case %llu: %s", (unsigned long long)options->seed, (unsigned long long)number,
             text);
    }
    if (options->only >= 0) {
      break;
    }
  }
  int missed = emulated_missed(&count, 100);
  bool all = options->seconds != 0 || options->only >= 0 || options->cases != 0 || missed < 0;
  if (!all) {
    printf("FAIL emulated: operation %d was run %llu times only\n", missed, (unsigned long long)count.by_op[missed]);
  }
  printf("%s emulated: seed %llu, %llu instructions same, %llu differ, %llu recorded ones, %llu on unknown flags, "
         "%llu faults\n",
         bad != 0 || !all ? "FAIL" : "ok  ", (unsigned long long)options->seed, (unsigned long long)count.emulated,
         (unsigned long long)bad, (unsigned long long)count.recorded, (unsigned long long)count.refused,
         (unsigned long long)count.faults);
  return bad != 0 || !all;
}

/* ---- effects ---- */

static int
run_effects(const struct options *options)
{
  static char text[TEXT_BYTES];
  struct effects_count count = {0};
  uint64_t bad = 0, cases = cases_of(options, 100000);
  double begin = now();
  if (effects_set_up() != 0) {
    printf("skip effects: no code can be made here\n");
    return -1;
  }
  for (uint64_t i = 0; options->seconds != 0 ? now() - begin < options->seconds : i < cases; i++) {
    uint64_t number = options->only >= 0 ? (uint64_t)options->only : i;
    if (effects_case(options->seed, number, &count, text, sizeof(text)) && bad++ < SHOWN_MAX) {
      printf("FAIL effects --seed %llu --case %llu: %s", (unsigned long long)options->seed, (unsigned long long)number,
             text);
    }
    if (options->only >= 0) {
      break;
    }
  }
  printf("%s effects: seed %llu, %llu vector instructions same (VEX and EVEX %llu, masked %llu), %llu differ, %llu "
         "faults\n",
         bad != 0 ? "FAIL" : "ok  ", (unsigned long long)options->seed, (unsigned long long)count.same,
         (unsigned long long)count.vex, (unsigned long long)count.masked, (unsigned long long)bad,
         (unsigned long long)count.faults);
  return bad != 0 || (count.same == 0 && options->only < 0);
}

/* ---- steps ---- */

static int
run_steps(const struct options *options)
{
  static char text[TEXT_BYTES];
  struct steps_count count = {0};
  int64_t bad = steps_run(cases_of(options, 15000), &count, text, sizeof(text));
  if (bad < 0) {
    printf("skip steps: no program can be stepped here\n");
    return -1;
  }
  if (bad != 0) {
    printf("FAIL steps: %s", text);
  }
  printf("%s steps: %llu programs, %llu steps, %lld differ, %llu derivable with %llu loads, %llu stores\n",
         bad != 0 ? "FAIL" : "ok  ", (unsigned long long)count.programs, (unsigned long long)count.steps,
         (long long)bad, (unsigned long long)count.derivable, (unsigned long long)count.loads,
         (unsigned long long)count.stores);
  return bad != 0;
}

/* ---- the translator ---- */

static int
run_programs(const struct options *options, const char *name, bool is_recorded, uint64_t usual,
             struct translated_count *count, uint64_t *bad)
{
  static char text[TEXT_BYTES];
  uint64_t cases = cases_of(options, usual);
  double begin = now();
  *bad = 0;
  if (translated_set_up() != 0) {
    printf("skip %s: no code can be made here\n", name);
    return -1;
  }
  for (uint64_t i = 0; options->seconds != 0 ? now() - begin < options->seconds : i < cases; i++) {
    uint64_t number = options->only >= 0 ? (uint64_t)options->only : i;
    if (translated_case(options->seed, number, is_recorded, count, text, sizeof(text)) && (*bad)++ < SHOWN_MAX) {
      printf("FAIL %s --seed %llu --case %llu: %s", name, (unsigned long long)options->seed, (unsigned long long)number,
             text);
    }
    if (options->only >= 0) {
      break;
    }
  }
  translated_tear_down();
  return *bad != 0 || (count->instructions == 0 && options->only < 0);
}

/* What the programs had in them. Each kind that a machine of today has must be there, where they are as many as usual.
 */
static int
say_classes(const struct options *options, const char *name, const struct translated_count *count)
{
  enum { AT_LEAST = 60000 };
  bool is_usual = options->only < 0 && count->instructions >= AT_LEAST;
  int result = 0;
  printf("     %s:", name);
  for (int i = 0; i < CLASSES; i++) {
    printf(" %llu %s%s", (unsigned long long)count->by_class[i], class_names[i], i + 1 < CLASSES ? "," : "\n");
    result |= is_usual && count->by_class[i] == 0;
  }
  if (result != 0) {
    printf("FAIL %s: a kind of instructions was not executed\n", name);
  }
  return result;
}

static int
run_translated(const struct options *options)
{
  struct translated_count count = {0};
  uint64_t bad;
  int result = run_programs(options, "translated", false, 600, &count, &bad);
  if (result < 0) {
    return result;
  }
  printf("%s translated: seed %llu, %llu programs differ, %llu native states, %llu emulated, %llu steps of "
         "translated code, %llu "
         "requests, %llu instructions stepped, %llu system calls, %llu stale units, %llu flushes, %llu far links, %llu "
         "faults, %llu deserted\n",
         bad != 0 ? "FAIL" : "ok  ", (unsigned long long)options->seed, (unsigned long long)bad,
         (unsigned long long)count.instructions, (unsigned long long)count.emulated, (unsigned long long)count.steps,
         (unsigned long long)count.requests, (unsigned long long)count.stepped, (unsigned long long)count.system_calls,
         (unsigned long long)count.stale, (unsigned long long)count.flushes, (unsigned long long)count.far,
         (unsigned long long)count.faults, (unsigned long long)count.deserted);
  return say_classes(options, "translated", &count) | result;
}

static int
run_recorded(const struct options *options)
{
  struct translated_count count = {0};
  uint64_t bad;
  int result = run_programs(options, "recorded", true, 300, &count, &bad);
  if (result < 0) {
    return result;
  }
  printf("%s recorded: seed %llu, %llu programs differ, %llu native states, %llu of the reader's steps are the same, "
         "%llu with all vector registers; %llu states told, %llu stops, %llu segments, %llu instructions stepped, "
         "%llu apart, %llu system calls, %llu faults\n",
         bad != 0 ? "FAIL" : "ok  ", (unsigned long long)options->seed, (unsigned long long)bad,
         (unsigned long long)count.instructions, (unsigned long long)count.records.steps,
         (unsigned long long)count.records.vectors, (unsigned long long)count.records.contexts,
         (unsigned long long)count.stops, (unsigned long long)count.rooms, (unsigned long long)count.stepped,
         (unsigned long long)count.apart, (unsigned long long)count.system_calls, (unsigned long long)count.faults);
  return say_classes(options, "recorded", &count) | result;
}

static const struct {
  const char *name;
  int (*run)(const struct options *options); /* 0 passed, 1 failed, -1 skipped */
} parts[] = {{"windows", run_windows},       {"entries", run_entries},   {"calls", run_calls},
             {"effects", run_effects},       {"emulated", run_emulated}, {"steps", run_steps},
             {"translated", run_translated}, {"recorded", run_recorded}};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static void
usage(void)
{
  fprintf(
      stderr,
      "usage: differential [--seed N] [--cases N] [--percent N] [--seconds N] [--case N] [--part NAME] [FILE...]\n");
  exit(2);
}

static void
read_options(int argc, char **argv, struct options *options)
{
  static const struct option names[] = {{"seed", 1, NULL, 's'},    {"cases", 1, NULL, 'n'}, {"percent", 1, NULL, 'x'},
                                        {"seconds", 1, NULL, 't'}, {"case", 1, NULL, 'c'},  {"part", 1, NULL, 'p'},
                                        {"build", 1, NULL, 'b'},   {NULL, 0, NULL, 0}};
  *options = (struct options){.seed = 1, .percent = 100, .only = -1};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    switch (c) {
    case 's':
      options->seed = strtoull(optarg, NULL, 0);
      break;
    case 'n':
      options->cases = strtoull(optarg, NULL, 0);
      break;
    case 'x':
      options->percent = strtoull(optarg, NULL, 0);
      break;
    case 't':
      options->seconds = strtod(optarg, NULL);
      break;
    case 'c':
      options->only = (int64_t)strtoull(optarg, NULL, 0);
      break;
    case 'p':
      options->part = optarg;
      break;
    case 'b': /* the folder of the build, as all groups of tests get it */
      break;
    default:
      usage();
    }
  }
  for (; optind < argc && options->path_count < PATHS_MAX; optind++) {
    options->paths[options->path_count++] = argv[optind];
  }
  if (options->path_count == 0) {
    options->path_count = image_paths(options->paths, PATHS_MAX);
  }
}

int
main(int argc, char **argv)
{
  struct options options;
  int count[3] = {0};
  read_options(argc, argv, &options);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (machine_set_up() != 0) {
    printf("skip differential: this machine's signal frames are not understood\n0 passed, 0 failed, %d skipped\n",
           PARTS);
    return 0;
  }
  for (size_t i = 0; i < PARTS; i++) {
    if (options.part == NULL || strcmp(options.part, parts[i].name) == 0) {
      count[parts[i].run(&options) + 1]++;
    }
  }
  printf("%d passed, %d failed, %d skipped\n", count[1], count[2], count[0]);
  return count[2] != 0;
}
