/* SPDX-License-Identifier: MIT */
/* The asking side of <contrail/control.h>. */
#include <contrail/control.h>

#include "control/client.h"
#include "control/runtime_dir.h"

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

int
ct_control_find(const char *name, char id[CT_CONTROL_ID_BYTES], struct ct_diag *diag)
{
  char **ids;
  size_t count;
  int code = list_ids(&ids, &count, diag);
  if (code != CT_OK) {
    return code;
  }
  if (name == NULL && count > 1) {
    code = ct_fail(diag, CT_ERANGE, "there are %zu sessions (contrail sessions): which one?", count);
  } else {
    size_t i = 0;
    while (i < count && name != NULL && !is_meant(ids[i], name)) {
      i++;
    }
    if (i < count) {
      strcpy(id, ids[i]); /* valid ids are shorter */
    } else if (name == NULL) {
      code = ct_fail(diag, CT_ENOENT, "there is no session");
    } else {
      code = ct_fail(diag, CT_ENOENT, "there is no session %.80s", name);
    }
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
