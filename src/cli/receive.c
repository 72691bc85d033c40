/* SPDX-License-Identifier: MIT */
/* contrail receive: the other end of record --to. */
#include "cli/command.h"
#include "cli/quantity.h"

#include <contrail/stream.h>
#include <contrail/text.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct wanted {
  struct ct_receive_options options;
  const char *token;
  bool quiet;
};

static int
apply_limit(const struct ct_applied *applied)
{
  if (!ct_parse_size(applied->value, applied->member)) {
    return ct_usage_error(applied->command, "'%s' is no size (512M, 20G)", applied->value);
  }
  return CT_EXIT_OK;
}

static int
apply_wait(const struct ct_applied *applied)
{
  if (!ct_parse_duration(applied->value, true, applied->member)) {
    return ct_usage_error(applied->command, "'%s' is no time (30s, 5m)", applied->value);
  }
  return CT_EXIT_OK;
}

static const struct ct_option options[] = {
    {.name = "output",
     .letter = 'o',
     .argument = "DIR",
     .help = "write the trace to DIR: a new or empty directory, or that of the same recording, whose "
             "receiving was interrupted",
     .values = CT_COMPLETE_DIRECTORY,
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, options.directory)},
    {.name = "token",
     .argument = "FILE|TEXT",
     .help = "what a sender must know: the first line of FILE, or TEXT itself, 8 to 256 bytes. Needed for "
             "tcp. For nats: what the server asks for, a token or USER:PASSWORD. Others can see TEXT in the "
             "list of processes",
     .values = CT_COMPLETE_FILE,
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, token)},
    {.name = "wait",
     .argument = "TIME",
     .help = "wait so long for a sender that has gone (default 60s)",
     .apply = apply_wait,
     .offset = offsetof(struct wanted, options.wait_s)},
    {.name = "limit",
     .argument = "SIZE",
     .help = "take no more than SIZE (default: as much as the disk has)",
     .apply = apply_limit,
     .offset = offsetof(struct wanted, options.limit_bytes)},
    {.name = "quiet",
     .letter = 'q',
     .help = "say nothing but errors",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, quiet)},
    CT_OPTIONS_END,
};

static void
say(void *arg, const char *text)
{
  (void)arg;
  fprintf(stderr, "contrail: %s\n", text);
}

static int
receive(struct wanted *wanted, struct ct_diag *diag)
{
  char *token = NULL;
  struct ct_stream_summary summary = {.struct_size = sizeof(summary)};
  int code = wanted->token != NULL ? ct_stream_token(wanted->token, &token, diag) : CT_OK;
  if (code == CT_OK) {
    wanted->options.token = token;
    wanted->options.note = wanted->quiet ? NULL : say;
    code = ct_receive(&wanted->options, &summary, diag);
  }
  free(token);
  if (code == CT_OK && !wanted->quiet) {
    char bytes[CT_DURATION_CHARS];
    fprintf(stderr,
            "contrail: %s has the whole trace: %" PRIu64 " files, %s; the connection was lost %" PRIu64 " times",
            wanted->options.directory, summary.files, ct_format_bytes(bytes, summary.bytes), summary.cuts);
    if (summary.missed != 0) {
      fprintf(stderr, ", %" PRIu64 " messages did not arrive and were sent again", summary.missed);
    }
    fputc('\n', stderr);
  }
  return code;
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.options = {.struct_size = sizeof(wanted.options), .wait_s = 60}};
  struct ct_diag diag = {""};
  int code = ct_parse(&ct_command_receive, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  if (argc - optind != 1) {
    return ct_usage_error(
        &ct_command_receive,
        "one address is needed: unix:PATH, tcp://HOST:PORT, nats://HOST:PORT/SUBJECT, or - for standard input");
  }
  if (wanted.options.directory == NULL) {
    return ct_usage_error(&ct_command_receive, "where to? -o DIR");
  }
  wanted.options.address = strcmp(argv[optind], "-") == 0 ? "fd:0" : argv[optind];
  int error = receive(&wanted, &diag);
  if (error == CT_OK) {
    return CT_EXIT_OK;
  }
  return error == CT_EINVAL ? ct_usage_error(&ct_command_receive, "%s", diag.text)
                            : ct_command_failed(&ct_command_receive, "%s", diag.text);
}

const struct ct_command ct_command_receive = {
    .name = "receive",
    .summary = "the other end of record --to: a trace from another machine",
    .synopsis = "[OPTION]... -o DIR unix:PATH|tcp://HOST:PORT|nats://HOST:PORT/SUBJECT|-",
    .about = "Waits for one `contrail record --to`, attach or send, and writes the trace that it sends as a\n"
             "trace directory, which can be read while it grows. With - it reads what they have written from\n"
             "standard input, with fd:N from a descriptor. With a NATS server there may be many receivers of the\n"
             "same recording; each asks for what it has missed. Nothing is encrypted: over a network that others\n"
             "read, use a tunnel (ssh -L, stunnel).\n",
    .options = options,
    .closing = "contrail recover makes a trace that stays incomplete readable to its end. Exits with 0 when all of\n"
               "the trace is there, by the checksums of its files; 1 when it is not, 2 for wrong usage.\n",
    .run = run,
};
