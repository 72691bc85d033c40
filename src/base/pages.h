/* SPDX-License-Identifier: MIT */
/* Memory of megabytes that is about to be filled. */
#ifndef CT_BASE_PAGES_H
#define CT_BASE_PAGES_H

#include <stddef.h>

/* In large pages where the system has them: a fault for each 4 KiB takes longer than to fill it. NULL: out of memory. To
 * be freed. */
void *ct_pages_alloc(size_t size);

#endif
