/* SPDX-License-Identifier: MIT */
/* The asking side of <contrail/control.h>. */
#include <contrail/control.h>

#include "control/client.h"
#include "control/runtime_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All ids; none, when nobody ever recorded anything. */
static int
list_ids(char ***ids, size_t *count, struct ct_diag *diag)
{
  struct ct_runtime_dir runtime_dir;
  int code = ct_runtime_dir_open(&runtime_dir, false, diag);
  if (code == CT_ENOENT) {
    *ids = NULL;
    *count = 0;
    return CT_OK;
  }
  if (code != CT_OK) {
    return code;
  }
  code = ct_runtime_dir_ids(&runtime_dir, ids, count, diag);
  /* Those that are dead are taken away by the attempt, and not reported. */
  size_t live = 0;
  for (size_t i = 0; code == CT_OK && i < *count; i++) {
    int fd = -1, reached = ct_runtime_dir_connect(&runtime_dir, (*ids)[i], &fd, NULL);
    if (reached == CT_OK) {
      close(fd);
    }
    if (reached != CT_ENOENT) {
      (*ids)[live++] = (*ids)[i];
    } else {
      free((*ids)[i]);
    }
  }
  if (code == CT_OK) {
    (*ids)[live] = NULL;
    *count = live;
  }
  ct_runtime_dir_close(&runtime_dir);
  return code;
}

int
ct_control_list(ct_control_visit *visit, void *context, struct ct_diag *diag)
{
  char **ids;
  size_t count;
  int code = list_ids(&ids, &count, diag);
  for (size_t i = 0; code == CT_OK && i < count; i++) {
    visit(context, ids[i]);
  }
  if (code == CT_OK) {
    ct_runtime_dir_free_ids(ids);
  }
  return code;
}

/* The id itself, or all digits and what stands after its last '-'. */
static bool
is_meant(const char *id, const char *name)
{
  const char *pid = strrchr(id, '-');
  return strcmp(id, name) == 0 ||
         (name[strspn(name, "0123456789")] == '\0' && pid != NULL && strcmp(pid + 1, name) == 0);
}

/* Its program is called so: by its file, which the id has, or by what the process is started as (redis-server is a link
 * to another file). */
static bool
is_called(const char *id, const char *name)
{
  const char *pid = strrchr(id, '-');
  char path[64], called[64] = "";
  if (pid == NULL) {
    return false;
  }
  size_t length = (size_t)(pid - id);
  if (strlen(name) == length && strncmp(id, name, length) == 0) {
    return true;
  }
  snprintf(path, sizeof(path), "/proc/%.20s/comm", pid + 1);
  FILE *file = fopen(path, "re");
  if (file != NULL) {
    called[fread(called, 1, sizeof(called) - 1, file)] = '\0';
    called[strcspn(called, "\n")] = '\0';
    fclose(file);
  }
  return called[0] != '\0' && strcmp(called, name) == 0;
}

/* The one of that id, or else of that name. */
static int
find_named(char *const *ids, size_t count, const char *name, size_t *found, struct ct_diag *diag)
{
  size_t matches = 0;
  for (size_t i = 0; i < count; i++) {
    if (is_meant(ids[i], name)) {
      *found = i;
      return CT_OK;
    }
  }
  for (size_t i = 0; i < count; i++) {
    if (is_called(ids[i], name)) {
      *found = i;
      matches++;
    }
  }
  return matches == 1  ? CT_OK
         : matches > 1 ? ct_fail(diag, CT_ERANGE, "there are %zu sessions of %.80s (contrail sessions): which one?",
                                 matches, name)
                       : ct_fail(diag, CT_ENOENT, "there is no session %.80s", name);
}

int
ct_control_find(const char *name, char id[CT_CONTROL_ID_BYTES], struct ct_diag *diag)
{
  char **ids;
  size_t count, found = 0;
  int code = list_ids(&ids, &count, diag);
  if (code != CT_OK) {
    return code;
  }
  if (name != NULL) {
    code = find_named(ids, count, name, &found, diag);
  } else if (count != 1) {
    code = count == 0 ? ct_fail(diag, CT_ENOENT, "there is no session")
                      : ct_fail(diag, CT_ERANGE, "there are %zu sessions (contrail sessions): which one?", count);
  }
  if (code == CT_OK) {
    strcpy(id, ids[found]); /* valid ids are shorter */
  }
  ct_runtime_dir_free_ids(ids);
  return code;
}

struct ct_control_feed {
  int fd;
  struct ct_client_input input;
};

int
ct_control_feed_open(const char *id, const char *method, const char *params, int timeout_ms, char **result,
                     struct ct_control_feed **out, struct ct_diag *diag)
{
  struct ct_runtime_dir runtime_dir;
  struct ct_control_feed *feed = calloc(1, sizeof(*feed));
  json_t *json = NULL, *answer = NULL;
  if (feed == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  feed->fd = -1;
  if (params != NULL && (json = json_loads(params, JSON_REJECT_DUPLICATES, NULL)) == NULL) {
    ct_control_feed_close(feed);
    return ct_fail(diag, CT_EINVAL, "the parameters are no JSON");
  }
  int code = ct_runtime_dir_open(&runtime_dir, false, diag);
  if (code == CT_OK) {
    code = ct_runtime_dir_connect(&runtime_dir, id, &feed->fd, diag);
  }
  if (code == CT_OK) {
    code = ct_client_call(feed->fd, &feed->input, method, json, timeout_ms, &answer, diag);
  }
  char *text = code == CT_OK ? json_dumps(answer, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
  if (code == CT_OK && text == NULL) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the answer");
  }
  if (code == CT_OK) {
    *result = text;
    *out = feed;
  } else {
    ct_control_feed_close(feed);
  }
  ct_runtime_dir_close(&runtime_dir);
  json_decref(json);
  json_decref(answer);
  return code;
}

int
ct_control_feed_next(struct ct_control_feed *feed, int timeout_ms, char **event, struct ct_diag *diag)
{
  char *line;
  size_t length;
  int code = ct_client_line(feed->fd, &feed->input, timeout_ms, &line, &length, diag);
  if (code != CT_OK) {
    return code;
  }
  json_t *notification = json_loadb(line, length, 0, NULL);
  char *text = json_dumps(json_object_get(notification, "params"), JSON_COMPACT);
  json_decref(notification);
  free(line);
  if (text == NULL) {
    return ct_fail(diag, CT_EFORMAT, "what the session says is not understood");
  }
  *event = text;
  return CT_OK;
}

int
ct_control_feed_fd(const struct ct_control_feed *feed)
{
  return feed->fd;
}

void
ct_control_feed_close(struct ct_control_feed *feed)
{
  if (feed != NULL) {
    if (feed->fd >= 0) {
      close(feed->fd);
    }
    free(feed->input.bytes);
    free(feed);
  }
}

int
ct_control_call(const char *id, const char *method, const char *params, int timeout_ms, char **result,
                struct ct_diag *diag)
{
  struct ct_control_feed *feed;
  int code = ct_control_feed_open(id, method, params, timeout_ms, result, &feed, diag);
  if (code == CT_OK) {
    ct_control_feed_close(feed);
  }
  return code;
}
