/* SPDX-License-Identifier: MIT */
/* A recording of instructions: a folder with a file steps.TID for each thread. */
#ifndef CT_STEPS_FOLDER_H
#define CT_STEPS_FOLDER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The files of a folder, by their thread ids, or the one file that path is; *paths: a list of *count names in one
 * allocation, to be freed. CT_ENOENT: there are none in it; and as opendir fails.
 */
int ct_steps_folder_list(const char *path, char ***paths, size_t *count, struct ct_diag *diag);
/*
 * While somebody records into a folder it is held, and so it is released whatever ends him. A descriptor, -1: it cannot
 * be opened (then nobody sees that more comes).
 */
int ct_steps_folder_hold(const char *path);
/* Does somebody hold the folder that path is, or that has that file? */
bool ct_steps_folder_is_held(const char *path);
/* Whether path is a folder that has such a file, or is one. */
bool ct_steps_folder_is(const char *path);

#endif
