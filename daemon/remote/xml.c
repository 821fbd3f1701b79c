#include "daemon/remote/xml.h"

void xml_init(struct xml *xml, struct dl_span document)
{
    *xml = (struct xml){.left = document};
}

static bool xml_begins(const struct xml *xml, const char *with)
{
    size_t n = strlen(with);

    return xml->left.len >= n && memcmp(xml->left.data, with, n) == 0;
}

static void xml_skip(struct xml *xml, size_t n)
{
    xml->left.data += n;
    xml->left.len -= n;
}

/* Up to the next `end`, which is passed over, too. */
static bool xml_take_until(struct xml *xml, const char *end, struct dl_span *ret)
{
    const uint8_t *at =
        xml->left.len > 0 ? memmem(xml->left.data, xml->left.len, end, strlen(end)) : NULL;

    if (!at)
        return false;
    *ret = (struct dl_span){xml->left.data, (size_t)(at - xml->left.data)};
    xml_skip(xml, ret->len + strlen(end));
    return true;
}

static bool xml_is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* Without its name space's prefix. */
static struct dl_span xml_take_name(struct xml *xml)
{
    struct dl_span name = {xml->left.data, 0};

    while (name.len < xml->left.len && !xml_is_space(name.data[name.len]) &&
           !strchr("/>=<\"'&", name.data[name.len]))
        name.len++;
    xml_skip(xml, name.len);
    const uint8_t *colon = name.len > 0 ? memchr(name.data, ':', name.len) : NULL;
    if (colon) {
        name.len -= (size_t)(colon + 1 - name.data);
        name.data = colon + 1;
    }
    return name;
}

/* What follows a tag's name, up to its ">", quoted values as they are. */
static bool xml_skip_attributes(struct xml *xml, bool *ret_closes)
{
    uint8_t quote = 0, last = 0;

    while (xml->left.len > 0) {
        uint8_t byte = xml->left.data[0];

        xml_skip(xml, 1);
        if (quote) {
            quote = byte == quote ? 0 : quote;
        } else if (byte == '>') {
            *ret_closes = last == '/';
            return true;
        } else if (byte == '<') {
            return false;
        } else if (byte == '"' || byte == '\'') {
            quote = byte;
        }
        last = byte;
    }
    return false;
}

static enum xml_event xml_open(struct xml *xml)
{
    xml_skip(xml, 1);
    struct dl_span name = xml_take_name(xml);

    if (name.len == 0 || xml->depth == XML_DEPTH_MAX || (xml->depth == 0 && xml->has_root) ||
        !xml_skip_attributes(xml, &xml->closes))
        return XML_BAD;
    xml->has_root = true;
    xml->open[xml->depth++] = name;
    return XML_OPEN;
}

static enum xml_event xml_close(struct xml *xml)
{
    bool closes;

    xml_skip(xml, 2);
    struct dl_span name = xml_take_name(xml);
    if (xml->depth == 0 || !xml_skip_attributes(xml, &closes) || closes)
        return XML_BAD;
    const struct dl_span *open = &xml->open[xml->depth - 1];
    xml->was_closed = name.len == open->len && memcmp(name.data, open->data, name.len) == 0;
    return xml->was_closed ? XML_CLOSE : XML_BAD;
}

/* Text in an element; outside of it only spaces. */
static enum xml_event xml_text(struct xml *xml, struct dl_span *ret)
{
    const uint8_t *end = memchr(xml->left.data, '<', xml->left.len);
    struct dl_span text = {xml->left.data, end ? (size_t)(end - xml->left.data) : xml->left.len};
    bool is_blank = true;

    for (size_t i = 0; i < text.len; i++)
        is_blank = is_blank && xml_is_space(text.data[i]);
    if (xml->depth == 0 && !is_blank)
        return XML_BAD;
    xml_skip(xml, text.len);
    *ret = text;
    return XML_TEXT;
}

/* <?…?>, <!--…-->: nothing. */
static bool xml_skip_remarks(struct xml *xml, bool *ret_bad)
{
    struct dl_span remark;

    if (xml_begins(xml, "<?"))
        *ret_bad = !xml_take_until(xml, "?>", &remark);
    else if (xml_begins(xml, "<!--"))
        *ret_bad = !xml_take_until(xml, "-->", &remark);
    else
        return false;
    return true;
}

enum xml_event xml_next(struct xml *xml, struct dl_span *ret_text, bool *ret_is_raw)
{
    static const char cdata[] = "<![CDATA[";
    bool is_bad = false;

    *ret_is_raw = false;
    if (xml->was_closed)
        xml->depth--;
    xml->was_closed = xml->closes;
    if (xml->closes) {
        xml->closes = false;
        return XML_CLOSE;
    }
    while (xml_skip_remarks(xml, &is_bad))
        if (is_bad)
            return XML_BAD;
    if (xml->left.len == 0)
        return xml->depth == 0 && xml->has_root ? XML_DONE : XML_BAD;
    if (xml_begins(xml, "</"))
        return xml_close(xml);
    if (xml->depth > 0 && xml_begins(xml, cdata)) {
        xml_skip(xml, sizeof cdata - 1);
        *ret_is_raw = true;
        return xml_take_until(xml, "]]>", ret_text) ? XML_TEXT : XML_BAD;
    }
    if (xml_begins(xml, "<!"))
        return XML_BAD;
    return xml_begins(xml, "<") ? xml_open(xml) : xml_text(xml, ret_text);
}

bool xml_is(const struct xml *xml, uint32_t depth, const char *name)
{
    if (depth == 0 || depth > xml->depth)
        return false;
    const struct dl_span *open = &xml->open[depth - 1];
    return open->len == strlen(name) && memcmp(open->data, name, open->len) == 0;
}

/* ---- entities ------------------------------------------------------------------------------- */

static bool xml_add_character(struct text *to, uint32_t c)
{
    uint8_t bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t first[] = {0, 0, 0xC0, 0xE0, 0xF0};

    if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return false;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        bytes[i] = (uint8_t)(0x80 | (c & 0x3F));
    bytes[0] = (uint8_t)(first[n] | c);
    text_add_bytes(to, bytes, n);
    return true;
}

/* "38", "x26". */
static bool xml_add_number(struct text *to, const char *digits)
{
    bool is_hex = digits[0] == 'x';
    const char *at = digits + is_hex;
    uint32_t c = 0;

    if (!*at || strlen(at) > 7 || at[strspn(at, is_hex ? "0123456789abcdefABCDEF" : "0123456789")])
        return false;
    c = (uint32_t)strtoul(at, NULL, is_hex ? 16 : 10);
    return xml_add_character(to, c);
}

static bool xml_add_entity(struct text *to, const char *name)
{
    static const char *const entities[][2] = {
        {"lt", "<"}, {"gt", ">"}, {"amp", "&"}, {"quot", "\""}, {"apos", "'"}};

    if (name[0] == '#')
        return xml_add_number(to, name + 1);
    for (size_t i = 0; i < ARRAY_SIZE(entities); i++) {
        if (strcmp(name, entities[i][0]) == 0) {
            text_add(to, entities[i][1]);
            return true;
        }
    }
    return false;
}

bool xml_decode(struct text *to, struct dl_span text)
{
    enum { LONGEST = 10 };

    while (text.len > 0) {
        const uint8_t *amp = memchr(text.data, '&', text.len);
        size_t n = amp ? (size_t)(amp - text.data) : text.len;
        char name[LONGEST + 1];

        text_add_bytes(to, text.data, n);
        if (!amp)
            return true;
        size_t left = text.len - n - 1;
        const uint8_t *end = left > 0 ? memchr(amp + 1, ';', min_u64(left, LONGEST)) : NULL;
        if (!end)
            return false;
        size_t len = (size_t)(end - amp) - 1;
        memcpy(name, amp + 1, len);
        name[len] = '\0';
        if (!xml_add_entity(to, name))
            return false;
        text.len -= n + len + 2;
        text.data = end + 1;
    }
    return true;
}
