/* SPDX-License-Identifier: MIT */
/*
 * changes PID DIR: attaches to the process and changes what is traced as lines of standard input say, by the library.
 *   add|remove|exclude|include MODE PATTERN   MODE: auto, full or light
 * Answers "hooked before busy held-ns", or "error CODE TEXT". At the end of the input it detaches.
 */
#include <contrail/contrail.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int
change(struct ct_session *session, const char *what, const char *mode_name, const char *pattern,
       struct ct_session_change *done, struct ct_diag *diag)
{
  enum ct_select_mode mode = strcmp(mode_name, "full") == 0    ? CT_SELECT_FULL
                             : strcmp(mode_name, "light") == 0 ? CT_SELECT_LIGHT
                                                               : CT_SELECT_AUTO;
  if (strcmp(what, "add") == 0) {
    return ct_session_trace_add(session, pattern, mode, done, diag);
  }
  if (strcmp(what, "remove") == 0) {
    return ct_session_trace_remove(session, pattern, done, diag);
  }
  if (strcmp(what, "exclude") == 0) {
    return ct_session_exclude_add(session, pattern, done, diag);
  }
  return ct_session_exclude_remove(session, pattern, done, diag);
}

int
main(int argc, char **argv)
{
  struct ct_session_options options = {.struct_size = sizeof(options), .no_sampling = true, .lossless = true};
  struct ct_session_status status = {.struct_size = sizeof(status)};
  struct ct_session *session;
  struct ct_diag diag = {""};
  char line[1024], what[16], mode[16], pattern[900];
  if (argc != 3) {
    return 2;
  }
  options.directory = argv[2];
  options.selection = ct_selection_create();
  ct_selection_add(options.selection, "red_leaf_0", CT_SELECT_FULL, &diag);
  if (ct_session_create(&options, &session, &diag) != 0 || ct_session_attach(session, atoi(argv[1]), &diag) != 0 ||
      ct_session_resume(session, &diag) != 0) {
    fprintf(stderr, "changes: %s\n", diag.text);
    return 1;
  }
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof(line), stdin) != NULL && sscanf(line, "%15s %15s %899s", what, mode, pattern) == 3) {
    struct ct_session_change done = {.struct_size = sizeof(done)};
    int code = change(session, what, mode, pattern, &done, &diag);
    if (code != 0) {
      printf("error %d %s\n", code, diag.text);
    } else {
      printf("%zu %zu %zu %" PRIu64 "\n", done.hooked, done.before, done.busy, done.pause_ns);
    }
    fflush(stdout);
  }
  char *list = ct_session_trace_list(session);
  printf("%s\n", list);
  free(list);
  int code = ct_session_close(session, &status, &diag);
  ct_selection_free(options.selection);
  if (code != 0) {
    fprintf(stderr, "changes: %s\n", diag.text);
    return 1;
  }
  return 0;
}
