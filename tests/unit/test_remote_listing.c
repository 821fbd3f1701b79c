/* Pages of lists, in S3's XML and in the Hub's JSON, and what is no such page. */
#include "tests/lib/harness.h"

#include "daemon/remote/listing.h"
#include "daemon/remote/xml.h"
#include "tests/unit/remote_case.h"

#include <errno.h>
#include <stdio.h>

#define ROOT(inside)                                                         \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns='h" \
    "ttp://s3.amazonaws.com/doc/2006-03-01/'>" inside "</ListBucketResult>"
#define OBJECT(key, size) "<Contents><Key>" key "</Key><Size>" size "</Size></Contents>"
#define FOLDER(key)       "<CommonPrefixes><Prefix>" key "</Prefix></CommonPrefixes>"
#define MORE(more, next)  "<IsTruncated>" more "</IsTruncated>" next
#define NEXT(token)       "<NextContinuationToken>" token "</NextContinuationToken>"

static const char *const no_env[] = {NULL};

static int read_page(const char *url, const char *body, size_t len, const char *link,
                     struct remote_listing *ret, struct dl_error *err)
{
    struct remote_settings settings = settings_of(no_env);
    struct remote_place place = place_of(url, &settings);
    struct remote_headers headers;

    remote_headers_init(&headers);
    if (link)
        assert_int_equal(remote_headers_line(&headers, link, strlen(link), 0), 0);
    /* By itself on the heap, so that a sanitizer sees what is read behind it. */
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, body, len);
    int r = remote_listing_read(&place, (struct dl_span){copy, len}, &headers, ret, err);
    free(copy);
    remote_place_deinit(&place);
    remote_settings_deinit(&settings);
    return r;
}

/* "NAME SIZE ETAG MODIFIED", folders with "/" in place of the size, lines, then the next page. */
static void write_page(const struct remote_listing *page, char *ret, size_t size)
{
    int n = 0;

    ret[0] = '\0';
    for (uint32_t i = 0; i < page->n; i++) {
        const struct remote_entry *entry = &page->entries[i];

        n += snprintf(ret + n, size - (size_t)n, "[%s]", entry->name);
        if (entry->is_directory)
            n += snprintf(ret + n, size - (size_t)n, " /");
        else
            n += snprintf(ret + n, size - (size_t)n, " %llu", (unsigned long long)entry->size);
        if (entry->etag)
            n += snprintf(ret + n, size - (size_t)n, " %s", entry->etag);
        if (entry->modified >= 0)
            n += snprintf(ret + n, size - (size_t)n, " %lld", (long long)entry->modified);
        n += snprintf(ret + n, size - (size_t)n, "\n");
    }
    if (page->next)
        (void)snprintf(ret + n, size - (size_t)n, "next %s\n", page->next);
}

struct page_case {
    const char *url, *body, *link, *expected;
};

static void check_pages(const struct page_case *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct remote_listing page;
        struct dl_error err = {0};
        char got[1024];

        if (read_page(rows[i].url, rows[i].body, strlen(rows[i].body), rows[i].link, &page, &err) <
            0)
            fail_msg("row %zu: %s", i, err.message);
        write_page(&page, got, sizeof got);
        if (strcmp(got, rows[i].expected) != 0)
            fail_msg("row %zu:\n%s\ninstead of\n%s", i, got, rows[i].expected);
        remote_listing_deinit(&page);
    }
}

TEST(test_xml)
{
    static const struct page_case rows[] = {
        {"s3://b/", ROOT(""), NULL, ""},
        {"s3://b/", ROOT("<Name>b</Name>" OBJECT("a", "0") FOLDER("d/")), NULL, "[a] 0\n[d] /\n"},
        {"s3://b/t/",
         ROOT("<Contents><Key>t/x</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified><ETag>"
              "&quot;fba9&quot;</ETag><Size>434234</Size><Owner><ID>7</ID><Key>no</Key></Owner>"
              "<StorageClass>STANDARD</StorageClass></Contents>"),
         NULL, "[x] 434234 \"fba9\" 1255369830\n"},
        /* The folder's own marker is no entry; an empty name of a folder is one. */
        {"s3://b/t/", ROOT(OBJECT("t/", "0") FOLDER("t//") OBJECT("t/a", "1")), NULL,
         "[] /\n[a] 1\n"},
        /* What begins so, named by what follows the last slash that was asked for. */
        {"s3://b/t/sh", ROOT(OBJECT("t/sh-1", "1") FOLDER("t/sh/") OBJECT("t/sh", "2")), NULL,
         "[sh-1] 1\n[sh] /\n[sh] 2\n"},
        {"s3://b/", ROOT(OBJECT("d/", "0") OBJECT("d/e/f", "3")), NULL, "[d/] 0\n[d/e/f] 3\n"},
        /* Pages. */
        {"s3://b/", ROOT(MORE("true", NEXT("1/=+")) OBJECT("a", "1")), NULL, "[a] 1\nnext 1/=+\n"},
        {"s3://b/", ROOT(MORE("false", NEXT("1")) OBJECT("a", "1")), NULL, "[a] 1\n"},
        /* Names of any kind. */
        {"s3://b/", ROOT(OBJECT("a&lt;&amp;&#x26;&#38;amp;&gt;&apos;&#252;&#x1F600;&#10;", "1")),
         NULL, "[a<&&&amp;>'\u00fc\U0001F600\n] 1\n"},
        {"s3://b/", ROOT(OBJECT("<![CDATA[a&amp;<b>]]>c<!-- d -->e", "1")), NULL,
         "[a&amp;<b>ce] 1\n"},
        {"s3://b/", ROOT(OBJECT(" a+%20 ", "1")), NULL, "[ a+%20 ] 1\n"},
        {"s3://b/", ROOT(OBJECT("&#x800;&#xE000;&#xFFFF;&#1114111;", "1")), NULL,
         "[\u0800\ue000\uffff\U0010FFFF] 1\n"},
        /* Encoded ones, wherever it says so. */
        {"s3://b/d f/",
         ROOT(OBJECT("d+f/a%2Bb%25+c%20", "1")
                  FOLDER("d%20f/g%2F") "<EncodingType>url</EncodingType>"),
         NULL, "[a+b% c ] 1\n[g] /\n"},
        /* Etags as headers have them. */
        {"gs://b/", ROOT("<Contents><Key>a</Key><Size>1</Size><ETag>ab</ETag></Contents>"), NULL,
         "[a] 1 \"ab\"\n"},
        {"gs://b/",
         ROOT("<Contents><Key>a</Key><Size>9223372036854775807</Size><ETag/></Contents>"), NULL,
         "[a] 9223372036854775807\n"},
        {"s3://b/",
         "<x:ListBucketResult a=\"/>\" >\n" OBJECT("a", "1") "</x:ListBucketResult >\n<!-- end -->",
         NULL, "[a] 1\n"},
    };

    check_pages(rows, ARRAY_SIZE(rows));
}

TEST(test_json)
{
#define JSON(inside) "[" inside "]"
#define A            "{\"type\":\"file\",\"oid\":\"0a\",\"size\":10,\"path\":\"d/a\"}"
    static const struct page_case rows[] = {
        {"hf://datasets/o/n", "[]", NULL, ""},
        {"hf://datasets/o/n/d/",
         JSON(A ",{\"type\":\"directory\",\"oid\":\"9\",\"size\":0,\"path\":\"d/e\"},"
                "{\"type\":\"file\",\"oid\":\"0b\",\"size\":7,\"lfs\":{\"oid\":\"ff\",\"size\":7},"
                "\"path\":\"d/b \u00fc%20\"},{\"type\":\"submodule\",\"path\":\"d/s\"}"),
         NULL, "[a] 10 \"0a\"\n[e] /\n[b \u00fc%20] 7 \"ff\"\n"},
        {"hf://datasets/o/n/d/b", JSON(A), NULL, ""},
        {"hf://datasets/o/n", JSON(A), NULL, "[d/a] 10 \"0a\"\n"},
        {"hf://datasets/o/n/d/", JSON(A),
         "Link: <https://huggingface.co/api/datasets/o/n/tree/main/d?recursive=false&cursor=ab%2B"
         "c%3D&limit=1>; rel=\"next\"",
         "[a] 10 \"0a\"\nnext ab+c=\n"},
    };

    check_pages(rows, ARRAY_SIZE(rows));
#undef JSON
}

TEST(test_none)
{
    static const struct page_case rows[] = {
        {"s3://b/", "", NULL, "no XML"},
        {"s3://b/", "<html><body>404</body></html>", NULL, "another document"},
        {"s3://b/", "<Error><Code>x</Code></Error>", NULL, "another document"},
        {"s3://b/", "not found", NULL, "no XML"},
        {"s3://b/", "<ListBucketResult>" OBJECT("a", "1"), NULL, "no XML"},
        {"s3://b/", ROOT("") "<ListBucketResult/>", NULL, "no XML"},
        {"s3://b/", ROOT("") "x", NULL, "no XML"},
        {"s3://b/", "<!DOCTYPE a [<!ENTITY b \"c\">]>" ROOT(""), NULL, "no XML"},
        {"s3://b/", ROOT("<a></b>"), NULL, "no XML"},
        {"s3://b/", ROOT("<a x=\"></a>"), NULL, "no XML"},
        {"s3://b/", ROOT("<>"), NULL, "no XML"},
        {"s3://b/", ROOT("<![CDATA[x"), NULL, "no XML"},
        {"s3://b/", ROOT(OBJECT("a&b;", "1")), NULL, "entity"},
        {"s3://b/", ROOT(OBJECT("a&#0;", "1")), NULL, "entity"},
        {"s3://b/", ROOT(OBJECT("a&#xD800;", "1")), NULL, "entity"},
        {"s3://b/", ROOT(OBJECT("a&#x110000;", "1")), NULL, "entity"},
        {"s3://b/", ROOT(OBJECT("a&amp", "1")), NULL, "entity"},
        {"s3://b/", ROOT("<Contents><Key>a</Key></Contents>"), NULL, "no size"},
        {"s3://b/", ROOT("<Contents><Size>1</Size></Contents>"), NULL, "no name"},
        {"s3://b/", ROOT("<CommonPrefixes/>"), NULL, "no name"},
        {"s3://b/", ROOT("<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>"), NULL,
         "two names"},
        {"s3://b/", ROOT(OBJECT("a", "-1")), NULL, "no number"},
        {"s3://b/", ROOT(OBJECT("a", "")), NULL, "no number"},
        {"s3://b/", ROOT(OBJECT("a", "1e3")), NULL, "no number"},
        {"s3://b/", ROOT(OBJECT("a", "9223372036854775808")), NULL, "no number"},
        {"s3://b/", ROOT(OBJECT("a", "99999999999999999999999")), NULL, "no number"},
        {"s3://b/", ROOT(FOLDER("d")), NULL, "does not end with a slash"},
        {"s3://b/t/", ROOT(OBJECT("u/a", "1")), NULL, "do not begin"},
        {"s3://b/t/", ROOT(OBJECT("t", "1")), NULL, "do not begin"},
        {"s3://b/", ROOT(OBJECT("a%0", "1") "<EncodingType>url</EncodingType>"), NULL,
         "not encoded"},
        {"s3://b/", ROOT(OBJECT("a%00", "1") "<EncodingType>url</EncodingType>"), NULL,
         "not encoded"},
        {"s3://b/", ROOT(MORE("true", "") OBJECT("a", "1")), NULL, "ListObjectsV2"},
        {"hf://o/n", "", NULL, "no list in JSON"},
        {"hf://o/n", "{\"error\":\"x\"}", NULL, "no list in JSON"},
        {"hf://o/n", "[", NULL, "no list in JSON"},
        {"hf://o/n", "[7]", NULL, "no type"},
        {"hf://o/n", "[{\"type\":\"file\",\"path\":\"a\"}]", NULL, "no size"},
        {"hf://o/n", "[{\"type\":\"file\",\"path\":\"a\",\"size\":-1}]", NULL, "no size"},
        {"hf://o/n", "[{\"type\":\"file\",\"path\":\"a\\u0000b\",\"size\":1}]", NULL,
         "no list in JSON"},
        {"hf://o/n", "[]", "Link: <https://h/x?limit=1>; rel=\"next\"", "not where"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_listing page;
        struct dl_error err = {0};
        int r =
            read_page(rows[i].url, rows[i].body, strlen(rows[i].body), rows[i].link, &page, &err);

        if (r != -EBADMSG || !strstr(err.message, rows[i].expected))
            fail_msg("row %zu: %d, %s", i, r, err.message);
        assert_string_equal(err.path, rows[i].url);
        assert_null(page.entries);
        assert_null(page.next);
    }
}

/* Cut off anywhere it is refused, and its depth and its size are bounded. */
TEST(test_bounds)
{
    static const char whole[] = ROOT(MORE("true", NEXT("1")) OBJECT("a&amp;", "1") FOLDER("d/"));
    struct remote_listing page;
    struct dl_error err;
    char deep[400];

    for (size_t n = 0; n < sizeof whole - 1; n++)
        assert_int_equal(read_page("s3://b/", whole, n, NULL, &page, &err), -EBADMSG);
    /* <ListBucketResult>, and in it XML_DEPTH_MAX elements, or one less. */
    for (int levels = XML_DEPTH_MAX - 1; levels <= XML_DEPTH_MAX; levels++) {
        strcpy(deep, "<ListBucketResult>");
        for (int i = 0; i < levels; i++)
            strcat(deep, "<a>");
        for (int i = 0; i < levels; i++)
            strcat(deep, "</a>");
        strcat(deep, "</ListBucketResult>");
        assert_int_equal(read_page("s3://b/", deep, strlen(deep), NULL, &page, &err),
                         levels < XML_DEPTH_MAX ? 0 : -EBADMSG);
    }

    char *large = malloc(REMOTE_LISTING_BYTES + 1);
    assert_non_null(large);
    memset(large, ' ', REMOTE_LISTING_BYTES + 1);
    memcpy(large, "<ListBucketResult/>", 19);
    assert_int_equal(read_page("s3://b/", large, REMOTE_LISTING_BYTES, NULL, &page, &err), 0);
    remote_listing_deinit(&page);
    assert_int_equal(read_page("s3://b/", large, REMOTE_LISTING_BYTES + 1, NULL, &page, &err),
                     -EFBIG);
    free(large);
    assert_int_equal(read_page("http://h/", "", 0, NULL, &page, &err), -ENOTSUP);
}

/* A page as large as they come. */
TEST(test_thousand)
{
    struct dl_buffer body = {0};
    struct remote_listing page;
    struct dl_error err;
    char line[128];

    assert_int_equal(buffer_append(&body, "<ListBucketResult>", 18), 0);
    for (int i = 0; i < 1000; i++) {
        int n = snprintf(line, sizeof line, OBJECT("x/%06d", "%d"), i, i);

        assert_int_equal(buffer_append(&body, line, (size_t)n), 0);
    }
    assert_int_equal(buffer_append(&body, "</ListBucketResult>", 19), 0);
    assert_int_equal(read_page("s3://b/x/", (char *)body.data, body.len, NULL, &page, &err), 0);
    assert_int_equal(page.n, 1000);
    assert_string_equal(page.entries[999].name, "000999");
    assert_int_equal(page.entries[999].size, 999);
    remote_listing_deinit(&page);
    buffer_deinit(&body);
}
