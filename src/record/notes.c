/* SPDX-License-Identifier: MIT */
/*
 * What the user should know of a recording that is good: kept in the manifest, and in the session's status, which the
 * commands show at the end.
 */
#include "record/session_internal.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

#define OF_CHILD "a child: "

enum { CODE_MIN = 65536 }; /* bytes; of less, some assembler may be half */

/* By the bits of enum ct_cut. */
static const char *const cuts[] = {
    "the program is under a seccomp filter: its new threads and stacks, its output, texts that pointers point to, "
    "libraries that come and programs that it goes on to are not recorded from there on",
    "a thread went under strict seccomp, and is recorded up to there",
    "a thread has forbidden itself the time stamp counter (PR_SET_TSC), and is recorded up to there",
    "system calls of a thread are dispatched to itself (PR_SET_SYSCALL_USER_DISPATCH): new stacks of it and what it "
    "writes "
    "are not recorded from there on",
};

static bool
has_note(const json_t *notes, const char *text)
{
  size_t i;
  json_t *note;
  json_array_foreach(notes, i, note)
  {
    if (strcmp(json_string_value(note), text) == 0) {
      return true;
    }
  }
  return false;
}

/* Where it is one of the notes of the line, or several that follow each other; NULL where it is a part of one. */
static const char *
place_in_line(const char *line, const char *text)
{
  size_t length = strlen(text);
  for (const char *at = strstr(line, text); at != NULL && length != 0; at = strstr(at + 1, text)) {
    bool begins = at == line || (at - line >= 2 && memcmp(at - 2, "; ", 2) == 0);
    if (begins && (at[length] == '\0' || strncmp(at + length, "; ", 2) == 0)) {
      return at;
    }
  }
  return NULL;
}

/* A note that was only a child's so far is one of the first process, too: a child's recording may end first. Not where
 * more follows it, which may be the child's, too. */
static bool
is_taken_from_child(char *line, const char *text)
{
  char of_child[sizeof(((struct ct_session_status *)NULL)->note)];
  int length = snprintf(of_child, sizeof(of_child), OF_CHILD "%s", text);
  const char *at = (size_t)length < sizeof(of_child) ? place_in_line(line, of_child) : NULL;
  if (at == NULL || (at[length] != '\0' && strncmp(at + length, "; " OF_CHILD, strlen("; " OF_CHILD)) != 0)) {
    return false;
  }
  char *begin = line + (at - line), *rest = begin + strlen(OF_CHILD);
  memmove(begin, rest, strlen(rest) + 1);
  return true;
}

void
session_add_to_line(char *line, size_t size, const char *text)
{
  size_t length = strlen(line);
  if (text[0] == '\0' || place_in_line(line, text) != NULL || is_taken_from_child(line, text)) {
    return;
  }
  if (length != 0 && strncmp(text, line, length) == 0 && strncmp(text + length, "; ", 2) == 0) {
    length = 0; /* a child may have the same notes, and then some, when the recording of the first process has ended */
  }
  if (length == 0 || length + strlen(text) + 3 < size) {
    snprintf(line + length, size - length, "%s%s", length != 0 ? "; " : "", text);
  } else if (place_in_line(line, "...") == NULL && length + sizeof("; ...") <= size) {
    snprintf(line + length, size - length, "; ..."); /* contrail info has all of them */
  }
}

void
session_note(struct ct_session *session, const char *text)
{
  pthread_mutex_lock(&session->sync.guard);
  if (session->recording.writer != NULL && session->recording.manifest.notes == NULL) {
    session->recording.manifest.notes = json_array();
  }
  if (!has_note(session->recording.manifest.notes, text)) {
    json_array_append_new(session->recording.manifest.notes, ct_json_string(text));
    session_add_to_line(session->sync.status.note, sizeof(session->sync.status.note), text);
    session->recording.manifest_is_old = true;
  }
  pthread_mutex_unlock(&session->sync.guard);
}

/* Of a line of the child's session. Its own trace has it, where info finds it. */
void
session_note_child(struct ct_session *first, const char *text)
{
  char note[sizeof(first->sync.status.note)];
  snprintf(note, sizeof(note), OF_CHILD "%s", text);
  pthread_mutex_lock(&first->sync.guard);
  if (strstr(first->sync.status.note, text) == NULL) {
    session_add_to_line(first->sync.status.note, sizeof(first->sync.status.note), note);
  }
  pthread_mutex_unlock(&first->sync.guard);
}

void
session_note_unknown(struct ct_session *session)
{
  char text[200];
  for (size_t i = 0; i < session->recording.modules.count; i++) {
    const struct ct_module *module = &session->recording.modules.items[i];
    const char *slash = module->path != NULL ? strrchr(module->path, '/') : NULL;
    if (module->code_bytes < CODE_MIN || module->known_bytes >= module->code_bytes / 2) {
      continue;
    }
    snprintf(text, sizeof(text),
             "only %.2g %% of the text of %.80s belongs to known functions; calls in the rest are not recorded",
             100.0 * (double)module->known_bytes / (double)module->code_bytes,
             slash != NULL ? slash + 1 : module->path);
    session_note(session, text);
  }
}

void
session_note_table(struct ct_session *session, int code, const char *effect)
{
  char text[200];
  if (code != CT_OK) {
    snprintf(text, sizeof(text), "%s: what debug information has of them could not be written (%s)", effect,
             ct_err_text(code));
    session_note(session, text);
  }
}

void
session_note_fetch(struct ct_session *session)
{
  int failure = ct_plans_fetch_failure(session->recording.modules.plans);
  char text[200], reason[100];
  if (failure != 0) {
    snprintf(text, sizeof(text),
             "debuginfod: no server has answered (%s); what debug information would show is missing",
             strerror_r(failure, reason, sizeof(reason)));
    session_note(session, text);
  }
}

void
session_note_cuts(struct ct_session *session)
{
  uint64_t bits = session->recording.image.ring != NULL
                      ? __atomic_load_n(&session->recording.image.ring->cuts, __ATOMIC_RELAXED)
                      : 0;
  for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
    if ((bits >> i & 1) != 0 && (session->recording.cuts_reported >> i & 1) == 0) {
      session->recording.cuts_reported |= 1ull << i;
      session_note(session, cuts[i]);
    }
  }
}
