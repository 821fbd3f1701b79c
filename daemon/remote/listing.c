#include "daemon/remote/listing.h"

#include "daemon/remote/date.h"
#include "daemon/remote/xml.h"
#include "proto/common/array.h"

#include <errno.h>
#include <jansson.h>

static void listing_entry_deinit(struct remote_entry *entry)
{
    free(entry->name);
    free(entry->etag);
    *entry = (struct remote_entry){.size = REMOTE_UNKNOWN, .modified = -1};
}

void remote_listing_deinit(struct remote_listing *listing)
{
    for (uint32_t i = 0; i < listing->n; i++)
        listing_entry_deinit(&listing->entries[i]);
    free(listing->entries);
    free(listing->next);
    *listing = (struct remote_listing){0};
}

/* A page while it is read. */
struct page {
    struct remote_listing *to;
    struct remote_entry now; /* owned: the entry that is read */
    struct text value;       /* text of the element that is read */
    uint32_t cap;
    bool is_coded;   /* names are percent-encoded */
    bool goes_on;    /* there is another page */
    bool is_lost;    /* out of memory */
    const char *bad; /* static: what is wrong; NULL: nothing */
};

static void page_bad(struct page *page, const char *why)
{
    if (!page->bad)
        page->bad = why;
}

/* Takes page->now, which is empty then. */
static void page_push(struct page *page)
{
    struct remote_listing *to = page->to;

    if (!array_reserve(to->entries, page->cap, to->n + UINT64_C(1))) {
        page->is_lost = true;
        return;
    }
    to->entries[to->n++] = page->now;
    page->now = (struct remote_entry){.size = REMOTE_UNKNOWN, .modified = -1};
}

static void page_set(struct page *page, char **to, const char *text)
{
    free(*to);
    *to = text_copy(text, &page->is_lost);
}

/* As the header ETag has it: in quotes. */
static void page_set_etag(struct page *page, const char *text)
{
    struct text etag = {0};
    bool is_quoted = text[0] == '"' || strncmp(text, "W/", 2) == 0;

    free(steal_ptr(page->now.etag));
    if (!*text || !text_is_plain(text))
        return;
    text_add(&etag, is_quoted ? "" : "\"");
    text_add(&etag, text);
    text_add(&etag, is_quoted ? "" : "\"");
    page->now.etag = text_take(&etag);
    page->is_lost |= !page->now.etag;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* From a whole key to what follows the place's folder; false: no entry, and no error either. */
static bool page_name(struct page *page, struct remote_entry *entry, const char *key)
{
    const char *slash = strrchr(key, '/');
    size_t folder = slash ? (size_t)(slash - key) + 1 : 0, n = strlen(entry->name);

    if (page->is_coded) {
        if (!text_decode(entry->name, &n, true)) {
            page_bad(page, "a name in it is not encoded as encoding-type=url says");
            return false;
        }
        entry->name[n] = '\0';
    }
    if (strncmp(entry->name, key, strlen(key)) != 0) {
        page_bad(page, "it has names that do not begin as was asked for");
        return false;
    }
    if (entry->is_directory) {
        if (n <= folder || entry->name[n - 1] != '/') {
            page_bad(page, "a folder in it does not end with a slash");
            return false;
        }
        entry->name[--n] = '\0';
    }
    memmove(entry->name, entry->name + folder, n - folder + 1);
    return n > folder || entry->is_directory;
}

static void page_names(struct page *page, const char *key)
{
    struct remote_listing *to = page->to;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < to->n; i++) {
        struct remote_entry entry = to->entries[i];

        if (!page->bad && page_name(page, &entry, key))
            to->entries[kept++] = entry;
        else
            listing_entry_deinit(&entry);
    }
    to->n = kept;
}

/* ---- s3's XML ------------------------------------------------------------------------------- */

static bool page_number(const char *text, uint64_t *ret)
{
    uint64_t n = 0;

    if (!*text || text[strspn(text, "0123456789")])
        return false;
    for (; *text; text++)
        if (mul_overflows(n, 10, &n) || add_overflows(n, (uint64_t)(*text - '0'), &n))
            return false;
    *ret = n;
    return true;
}

/* Children of <Contents> and <CommonPrefixes>. */
static void page_xml_of_entry(struct page *page, const struct xml *xml, const char *value)
{
    struct remote_entry *now = &page->now;
    bool is_object = xml_is(xml, 2, "Contents"), is_folder = xml_is(xml, 2, "CommonPrefixes");

    if ((is_object && xml_is(xml, 3, "Key")) || (is_folder && xml_is(xml, 3, "Prefix"))) {
        if (now->name)
            page_bad(page, "an entry in it has two names");
        page_set(page, &now->name, value);
    } else if (is_object && xml_is(xml, 3, "Size")) {
        if (!page_number(value, &now->size) || now->size > INT64_MAX)
            page_bad(page, "a size in it is no number of bytes");
    } else if (is_object && xml_is(xml, 3, "ETag")) {
        page_set_etag(page, value);
    } else if (is_object && xml_is(xml, 3, "LastModified")) {
        now->modified = date_of_iso(span_str(value));
    }
}

/* Children of the root. */
static void page_xml_of_root(struct page *page, const struct xml *xml, const char *value)
{
    if (xml_is(xml, 2, "Contents")) {
        if (!page->now.name || page->now.size == REMOTE_UNKNOWN)
            page_bad(page, "an object in it has no name, or no size");
        page_push(page);
    } else if (xml_is(xml, 2, "CommonPrefixes")) {
        if (!page->now.name)
            page_bad(page, "a folder in it has no name");
        page->now.is_directory = true;
        page->now.size = 0;
        page_push(page);
    } else if (xml_is(xml, 2, "IsTruncated")) {
        page->goes_on = strcmp(value, "true") == 0;
    } else if (xml_is(xml, 2, "NextContinuationToken")) {
        page_set(page, &page->to->next, value);
    } else if (xml_is(xml, 2, "EncodingType")) {
        page->is_coded = strcmp(value, "url") == 0;
    }
}

static void page_xml_event(struct page *page, const struct xml *xml, enum xml_event event,
                           struct dl_span piece, bool is_raw)
{
    if (event == XML_OPEN) {
        text_deinit(&page->value);
        if (xml->depth == 1 && !xml_is(xml, 1, "ListBucketResult"))
            page_bad(page, "it is another document than ListBucketResult");
        if (xml->depth == 2)
            listing_entry_deinit(&page->now);
    } else if (event == XML_TEXT) {
        if (memchr(piece.data, '\0', piece.len))
            page_bad(page, "there is a NUL in it");
        else if (is_raw)
            text_add_bytes(&page->value, piece.data, piece.len);
        else if (!xml_decode(&page->value, piece))
            page_bad(page, "it has an entity that is none of XML");
    } else if (event == XML_CLOSE) {
        _cleanup_free_ char *value = text_take(&page->value);

        page->is_lost |= !value;
        if (value && xml->depth == 3)
            page_xml_of_entry(page, xml, value);
        else if (value && xml->depth == 2)
            page_xml_of_root(page, xml, value);
    }
}

static void page_read_xml(struct page *page, struct dl_span body)
{
    enum xml_event event;
    struct dl_span piece = {0};
    struct xml xml;
    bool is_raw;

    xml_init(&xml, body);
    do {
        event = xml_next(&xml, &piece, &is_raw);
        page_xml_event(page, &xml, event, piece, is_raw);
    } while (event != XML_DONE && event != XML_BAD && !page->bad && !page->is_lost);
    if (event == XML_BAD)
        page_bad(page, "it is no XML, or ends too early");
    if (page->goes_on && (!page->to->next || !*page->to->next))
        page_bad(page, "it says that it goes on, and not where: the server may not know "
                       "ListObjectsV2");
    if (!page->goes_on)
        free(steal_ptr(page->to->next));
}

/* ---- hf's JSON ------------------------------------------------------------------------------ */

static void page_json_entry(struct page *page, const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    const char *path = json_string_value(json_object_get(json, "path"));
    const json_t *size = json_object_get(json, "size");
    const char *oid = json_string_value(json_object_get(json_object_get(json, "lfs"), "oid"));
    bool is_file = type && strcmp(type, "file") == 0;

    if (!type || !path || (is_file && (!json_is_integer(size) || json_integer_value(size) < 0))) {
        page_bad(page, "an entry in it has no type, no path, or no size");
        return;
    }
    if (!is_file && strcmp(type, "directory") != 0)
        return;
    listing_entry_deinit(&page->now);
    struct text name = {0};
    text_add(&name, path);
    text_add(&name, is_file ? "" : "/");
    page->now.name = text_take(&name);
    page->is_lost |= !page->now.name;
    page->now.is_directory = !is_file;
    page->now.size = is_file ? (uint64_t)json_integer_value(size) : 0;
    if (!oid)
        oid = json_string_value(json_object_get(json, "oid"));
    if (is_file && oid)
        page_set_etag(page, oid);
    if (page->now.name)
        page_push(page);
}

/* The server lists a whole folder: what does not begin with the key is not asked for. */
static void page_keep_beginning(struct page *page, const char *key)
{
    struct remote_listing *to = page->to;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < to->n; i++) {
        if (strncmp(to->entries[i].name, key, strlen(key)) == 0)
            to->entries[kept++] = to->entries[i];
        else
            listing_entry_deinit(&to->entries[i]);
    }
    to->n = kept;
}

static void page_read_json(struct page *page, struct dl_span body,
                           const struct remote_headers *headers, const char *key)
{
    json_auto_t *json =
        body.len > 0 ? json_loadb((const char *)body.data, body.len, 0, NULL) : NULL;

    if (!json_is_array(json)) {
        page_bad(page, "it is no list in JSON");
        return;
    }
    for (size_t i = 0; i < json_array_size(json) && !page->bad && !page->is_lost; i++)
        page_json_entry(page, json_array_get(json, i));
    page_keep_beginning(page, key);
    if (headers->has_next && !*headers->cursor)
        page_bad(page, "it says that it goes on, and not where");
    else if (headers->has_next)
        page_set(page, &page->to->next, headers->cursor);
}

/* ---- all ------------------------------------------------------------------------------------ */

int remote_listing_read(const struct remote_place *place, struct dl_span body,
                        const struct remote_headers *headers, struct remote_listing *ret,
                        struct dl_error *err)
{
    struct page page = {.to = ret, .now = {.size = REMOTE_UNKNOWN, .modified = -1}};
    int r = 0;

    *ret = (struct remote_listing){0};
    if (place->kind == REMOTE_HTTP)
        return dl_error_set(err, ENOTSUP, place->url,
                            "web servers have no lists of what they hold");
    if (body.len > REMOTE_LISTING_BYTES)
        return dl_error_set(err, EFBIG, place->url,
                            "a page of its list is larger than 8 MiB, as no server's is");
    if (place->kind == REMOTE_S3)
        page_read_xml(&page, body);
    else
        page_read_json(&page, body, headers, place->key);
    if (!page.bad && !page.is_lost)
        page_names(&page, place->key);
    listing_entry_deinit(&page.now);
    text_deinit(&page.value);
    if (page.is_lost)
        r = dl_error_set(err, ENOMEM, place->url, "out of memory");
    else if (page.bad)
        r = dl_error_set(err, EBADMSG, place->url,
                         "the server at %s gives a list that cannot be read: %s", place->origin,
                         page.bad);
    if (r < 0)
        remote_listing_deinit(ret);
    return r;
}
