/* SPDX-License-Identifier: MIT */
/*
 * 128 bits that stand for a file's content: to tell one content from another by accident's measure, not against
 * somebody who wants two files to be alike.
 *
 *   struct ct_content content;
 *   ct_content_begin(&content);
 *   ct_content_add(&content, bytes, size);   (again and again; all sizes but the last a multiple of CT_CONTENT_STEP)
 *   ct_content_end(&content, sum);
 */
#ifndef CT_BASE_CONTENT_H
#define CT_BASE_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#define CT_CONTENT_STEP 32u

struct ct_content {
  uint64_t lanes[4];
  uint64_t bytes;
};

void ct_content_begin(struct ct_content *content);
void ct_content_add(struct ct_content *content, const void *data, size_t size);
void ct_content_end(const struct ct_content *content, uint64_t sum[2]);

#endif
