/* SPDX-License-Identifier: MIT */
/* See source_glob.h. */
#include "base/source_glob.h"

#include <unistd.h>
#include <stdio.h>
#include <limits.h>
#include <string.h>

int
ct_source_glob_compile(const char *text, struct ct_source_glob *out, struct ct_diag *diag)
{
  static const char file[] = "@file:";
  *out = (struct ct_source_glob){.glob = NULL};
  if (strcmp(text, "@usercode") == 0) {
    return 0;
  }
  if (strncmp(text, file, sizeof(file) - 1) != 0) {
    return ct_fail(diag, CT_EINVAL, "only @file:FILE and @usercode begin with @ (\\@ stands for itself)");
  }
  const char *name = text + sizeof(file) - 1;
  while (strncmp(name, "./", 2) == 0) {
    name += 2;
  }
  if (name[0] == '\0' || name[strlen(name) - 1] == '/') {
    return ct_fail(diag, CT_EINVAL, "@file: takes the name of a file");
  }
  out->has_folder = strchr(name, '/') != NULL;
  return ct_glob_compile(name, strlen(name), &out->glob, diag);
}

void
ct_source_glob_free(struct ct_source_glob *source)
{
  ct_glob_free(source->glob);
  source->glob = NULL;
}

static bool
name_matches(const struct ct_source_glob *source, const char *name)
{
  size_t length = strlen(name);
  const char *slash = strrchr(name, '/'), *last = slash != NULL ? slash + 1 : name;
  const char *dot = strrchr(last, '.');
  return ct_glob_matches(source->glob, name, length) ||
         (dot != NULL && dot != last && ct_glob_matches(source->glob, name, (size_t)(dot - name)));
}

bool
ct_source_glob_matches(const struct ct_source_glob *source, const char *path)
{
  const char *slash = strrchr(path, '/');
  if (!source->has_folder) {
    return name_matches(source, slash != NULL ? slash + 1 : path);
  }
  for (const char *at = path; at != NULL;) {
    if (name_matches(source, at)) {
      return true;
    }
    slash = strchr(at, '/');
    at = slash != NULL ? slash + 1 : NULL;
  }
  return false;
}

bool
ct_path_is_below(const char *path, const char *root)
{
  size_t length = strlen(root);
  length -= length == 1; /* of "/" */
  return strncmp(path, root, length) == 0 && path[length] == '/';
}

bool
ct_source_is_below(const char *file, const char *root)
{
  char whole[PATH_MAX];
  if (file[0] == '/') {
    return ct_path_is_below(file, root);
  }
  int length = snprintf(whole, sizeof(whole), "%s/%s", root, file);
  return length < (int)sizeof(whole) && access(whole, F_OK) == 0;
}
