/* SPDX-License-Identifier: MIT */
/* The page without its data, made of src/export/html by tools/page.py: what goes before the data and what goes after.
 */
#ifndef CT_EXPORT_HTML_PAGE_H
#define CT_EXPORT_HTML_PAGE_H

extern const char ct_html_head[], ct_html_head_end[], ct_html_tail[], ct_html_tail_end[];

#endif
