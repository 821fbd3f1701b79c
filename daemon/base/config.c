#include "daemon/base/config.h"

#include "daemon/base/address.h"
#include "daemon/base/config_private.h"
#include "daemon/base/environment.h"
#include "daemon/base/log.h"
#include "daemon/base/lookup.h"
#include "daemon/base/memory.h"
#include "daemon/base/networks.h"

#include "proto/common/word_list.h"
#include "proto/spec.h"
#include "proto/yaml.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static void *config_field(struct config *config, const struct config_key *key)
{
    return (char *)config + key->offset;
}

/* ---- one value ------------------------------------------------------------------------------ */

int config_refuse_value(struct dl_error *err, const struct config_key *key, const struct value *v,
                        const char *right)
{
    if (v->type == VALUE_STRING)
        return dl_error_set(err, EINVAL, key->path, "\"%.256s\" is not %s", v->string, right);
    if (v->type == VALUE_INT)
        return dl_error_set(err, EINVAL, key->path, "%lld is not %s", (long long)v->integer, right);
    if (v->type == VALUE_UINT)
        return dl_error_set(err, EINVAL, key->path, "%llu is not %s", (ull)v->uinteger, right);
    return dl_error_set(err, EINVAL, key->path, "%s is not %s", value_type_name(v), right);
}

static int config_refuse(const struct config_key *key, const struct value *v, struct dl_error *err)
{
    return config_refuse_value(err, key, v, key->type->right);
}

static int config_set_string(void *at, const struct config_key *key, const struct value *v,
                             struct dl_error *err)
{
    char **ret = at;

    if (v->type != VALUE_STRING)
        return config_refuse(key, v, err);
    free(*ret);
    *ret = must_strdup(v->string);
    return 0;
}

static int config_set_address(void *at, const struct config_key *key, const struct value *v,
                              struct dl_error *err)
{
    union address address;

    if (v->type == VALUE_STRING && *v->string && !address_is_path(v->string) &&
        address_parse(v->string, &address) < 0)
        return config_refuse(key, v, err);
    return config_set_string(at, key, v, err);
}

static int config_set_mode(void *at, const struct config_key *key, const struct value *v,
                           struct dl_error *err)
{
    bool octal =
        v->type == VALUE_STRING && *v->string && v->string[strspn(v->string, "01234567")] == '\0';
    unsigned long mode = octal ? strtoul(v->string, NULL, 8) : 0;

    if (!octal || mode > 0777)
        return config_refuse(key, v, err);
    *(uint32_t *)at = (uint32_t)mode;
    return 0;
}

void config_dirs_add(struct config_dirs *dirs, const char *path)
{
    dirs->paths = must_realloc(dirs->paths, (dirs->n + 1) * sizeof(char *));
    dirs->paths[dirs->n++] = must_strdup(path);
}

bool config_dirs_has(const struct config_dirs *dirs, const char *path)
{
    for (uint32_t i = 0; i < dirs->n; i++)
        if (strcmp(dirs->paths[i], path) == 0)
            return true;
    return false;
}

int config_dirs_pack(const struct config_dirs *dirs, struct dl_buffer *out)
{
    _cleanup_(value_deinit) struct value list = {.type = VALUE_ARRAY};
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < dirs->n; i++) {
        struct value *item;
        r = value_push(&list, &item);
        if (r == 0)
            r = value_make_string(item, dirs->paths[i]);
    }
    return r < 0 ? r : value_pack(&list, out);
}

void config_dirs_deinit(struct config_dirs *dirs)
{
    for (uint32_t i = 0; i < dirs->n; i++) {
        free(dirs->paths[i]);
        if (dirs->seen_as)
            free(dirs->seen_as[i]);
    }
    free(dirs->paths);
    free(dirs->seen_as);
}

static bool config_is_absolute(const struct value *v)
{
    return v && v->type == VALUE_STRING && v->string[0] == '/';
}

static int config_add_directory(struct config_dirs *dirs, const struct config_key *key,
                                const struct value *v, struct dl_error *err)
{
    char resolved[PATH_MAX];

    if (!config_is_absolute(v))
        return config_refuse_value(err, key, v, "an absolute directory");
    int r = lookup_directory(v->string, resolved);
    bool later = r == -ENOENT && key->offset == offsetof(struct config, data_roots);
    if (r == -ETIMEDOUT)
        log_warning("%s: %s does not answer; the path is used as written, and if it contains a "
                    "link, nothing below it can be used until the configuration is reloaded",
                    key->path, v->string);
    else if (r < 0 && !later) /* data may come later */
        return dl_error_set(err, -r, key->path, "%s: %s", v->string, strerror(-r));
    config_dirs_add(dirs, r < 0 ? v->string : resolved);
    return 0;
}

/* ---- data_roots: directories, or where they are and what clients see them as ----------------- */

/* Names are compared as text, so only one spelling of each is allowed. */
static bool config_is_plain(const char *path)
{
    size_t len = strlen(path);

    return len > 1 && path[len - 1] != '/' && !strstr(path, "//") && !strstr(path, "/./") &&
           !strstr(path, "/../") && strcmp(path + len - 2, "/.") != 0 &&
           !(len > 2 && strcmp(path + len - 3, "/..") == 0);
}

static int config_check_seen(const struct config_key *key, const char *seen, struct dl_error *err)
{
    if (config_is_plain(seen))
        return 0;
    return dl_error_set(
        err, EINVAL, key->path,
        "\"%s\" cannot be a path that clients see; write it without //, /. and /.., "
        "and without / at its end",
        seen);
}

/* Two roots of the same name would be ambiguous. */
static int config_check_names(const struct config_dirs *roots, const struct config_key *key,
                              struct dl_error *err)
{
    for (uint32_t i = 0; roots->seen_as && i < roots->n; i++) {
        const char *seen = roots->seen_as[i];

        for (uint32_t k = 0; *seen && k < roots->n; k++) {
            const char *other = *roots->seen_as[k] ? roots->seen_as[k] : roots->paths[k];
            if (k != i && strcmp(seen, other) == 0)
                return dl_error_set(
                    err, EINVAL, key->path,
                    "%s is the path of two directories for clients; give each its own", seen);
        }
    }
    return 0;
}

static int config_add_root(struct config_dirs *roots, const struct config_key *key,
                           const struct value *v, struct dl_error *err)
{
    const struct value *path = v, *seen = NULL;
    int r = 0;

    if (v->type == VALUE_MAP) {
        path = value_get(v, "path");
        seen = value_get(v, "seen_as");
        if (v->count != 2 || !config_is_absolute(path) || !config_is_absolute(seen))
            return dl_error_set(err, EINVAL, key->path,
                                "a mapping in it is not of two absolute directories, such as "
                                "{path: /mnt/data, seen_as: /data}");
        r = config_check_seen(key, seen->string, err);
    }
    if (r == 0)
        r = config_add_directory(roots, key, path, err);
    if (r < 0)
        return r;
    roots->seen_as = must_realloc(roots->seen_as, roots->n * sizeof(char *));
    roots->seen_as[roots->n - 1] = must_strdup(seen ? seen->string : "");
    return 0;
}

/* ---- lists of other things ------------------------------------------------------------------- */

/* Links are not resolved: a virtual environment's interpreter is a link, identified by its name. */
static int config_add_program(struct config_dirs *programs, const struct config_key *key,
                              const struct value *item, struct dl_error *err)
{
    struct stat st;

    if (!config_is_absolute(item))
        return config_refuse_value(err, key, item, "the absolute path of a program");
    if (access(item->string, X_OK) < 0 || stat(item->string, &st) < 0)
        return dl_error_set(err, errno, key->path, "%s cannot be executed: %s", item->string,
                            strerror(errno));
    if (!S_ISREG(st.st_mode))
        return dl_error_set(err, EACCES, key->path, "%s is not a program", item->string);
    config_dirs_add(programs, item->string);
    return 0;
}

/* Links are not resolved: users name the file as it stands here. */
static int config_add_file(struct config_dirs *files, const struct config_key *key,
                           const struct value *item, struct dl_error *err)
{
    struct stat st;

    if (!config_is_absolute(item))
        return config_refuse_value(err, key, item, "the absolute path of a file");
    if (stat(item->string, &st) < 0)
        return dl_error_set(err, errno, key->path, "%s: %s", item->string, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return dl_error_set(err, EINVAL, key->path, "%s is not a file", item->string);
    config_dirs_add(files, item->string);
    return 0;
}

static int config_add_object(struct config_dirs *objects, const struct config_key *key,
                             const struct value *item, struct dl_error *err)
{
    if (item->type != VALUE_STRING || !spec_is_callable(item->string))
        return config_refuse_value(err, key, item, "module:name, such as mypackage.data:Dataset");
    config_dirs_add(objects, item->string);
    return 0;
}

bool config_is_place(const char *text)
{
    const char *colon = strrchr(text, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    bool bracketed = *text == '[' && colon && colon[-1] == ']';

    return colon > text && digits >= 1 && digits <= 5 && !colon[1 + digits] &&
           strtoul(colon + 1, NULL, 10) - 1 < UINT16_MAX && strlen(text) < 256 &&
           (bracketed || strcspn(text, ":[]/ ") == (size_t)(colon - text));
}

static int config_add_helper(struct config_dirs *helpers, const struct config_key *key,
                             const struct value *item, struct dl_error *err)
{
    if (item->type != VALUE_STRING || !config_is_place(item->string))
        return config_refuse_value(err, key, item,
                                   "the address of a helper, such as node7:7071 or 10.0.0.7:7071");
    config_dirs_add(helpers, item->string);
    return 0;
}

static int config_set_list(void *at, const struct config_key *key, const struct value *v,
                           struct dl_error *err)
{
    int r = 0;

    if (v->type != VALUE_ARRAY)
        return config_refuse(key, v, err);
    for (uint32_t i = 0; i < v->count && r == 0; i++)
        r = key->type->add(at, key, &v->items[i], err);
    return r < 0 ? r : config_check_names(at, key, err);
}

static int config_set_networks(void *at, const struct config_key *key, const struct value *v,
                               struct dl_error *err)
{
    const struct value *items = v->type == VALUE_ARRAY ? v->items : v;
    uint32_t n = v->type == VALUE_ARRAY ? v->count : 1;
    struct networks networks = {0};
    const char *wrong;

    config_dirs_deinit(at);
    *(struct config_dirs *)at = (struct config_dirs){0};
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].type != VALUE_STRING || networks_parse(items[i].string, &networks, &wrong) < 0)
            return config_refuse(key, &items[i], err);
        config_dirs_add(at, items[i].string);
    }
    return 0;
}

/* ---- numbers and words ----------------------------------------------------------------------- */

static int config_set_duration(void *at, const struct config_key *key, const struct value *v,
                               struct dl_error *err)
{
    uint64_t *ret = at;

    if (v->type == VALUE_INT && v->integer >= 0 && v->integer < INT64_MAX / 1000000000) {
        *ret = (uint64_t)v->integer * 1000000000u;
        return 0;
    }
    if (v->type != VALUE_STRING || parse_duration(v->string, ret) < 0)
        return config_refuse(key, v, err);
    return 0;
}

/* 0: it is not a size. */
static uint64_t config_read_bytes(const struct value *v)
{
    uint64_t bytes = 0;

    if (v->type == VALUE_INT && v->integer > 0)
        return (uint64_t)v->integer;
    return v->type == VALUE_STRING && parse_bytes(v->string, &bytes) == 0 ? bytes : 0;
}

static int config_set_bytes(void *at, const struct config_key *key, const struct value *v,
                            struct dl_error *err)
{
    uint64_t bytes = config_read_bytes(v);

    if (bytes == 0)
        return config_refuse(key, v, err);
    *(uint64_t *)at = bytes;
    return 0;
}

/* "50%"; 0 if it is not of that form, or not from 1 to 100. */
static uint64_t config_parse_per_cent(const char *text)
{
    char *end;
    unsigned long n = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;

    return n >= 1 && n <= 100 && strcmp(end, "%") == 0 ? n : 0;
}

/* 0: none. */
static int config_set_rate(void *at, const struct config_key *key, const struct value *v,
                           struct dl_error *err)
{
    bool none = v->type == VALUE_STRING && strcmp(v->string, "none") == 0;

    *(uint64_t *)at = 0;
    return none ? 0 : config_set_bytes(at, key, v, err);
}

static int config_set_share(void *at, const struct config_key *key, const struct value *v,
                            struct dl_error *err)
{
    struct config_share share = {0};

    if (v->type == VALUE_STRING)
        share.per_cent = config_parse_per_cent(v->string);
    if (!share.per_cent)
        share.bytes = config_read_bytes(v);
    if (share.bytes == 0 && share.per_cent == 0)
        return config_refuse(key, v, err);
    *(struct config_share *)at = share;
    return 0;
}

static int config_set_count(void *at, const struct config_key *key, const struct value *v,
                            struct dl_error *err)
{
    if (v->type != VALUE_INT || v->integer < 1)
        return config_refuse(key, v, err);
    *(uint64_t *)at = (uint64_t)v->integer;
    return 0;
}

/* 0: auto. */
static int config_set_auto_count(void *at, const struct config_key *key, const struct value *v,
                                 struct dl_error *err)
{
    if (v->type != VALUE_STRING || strcmp(v->string, "auto") != 0)
        return config_set_count(at, key, v, err);
    *(uint64_t *)at = 0;
    return 0;
}

static int config_set_auto_bytes(void *at, const struct config_key *key, const struct value *v,
                                 struct dl_error *err)
{
    if (v->type != VALUE_STRING || strcmp(v->string, "auto") != 0)
        return config_set_bytes(at, key, v, err);
    *(uint64_t *)at = 0;
    return 0;
}

static int config_set_level(void *at, const struct config_key *key, const struct value *v,
                            struct dl_error *err)
{
    if (v->type != VALUE_STRING || log_level_from_name(v->string, at) < 0)
        return config_refuse(key, v, err);
    return 0;
}

/* One of an enum's values, in their order. */
static int config_set_word(void *at, const struct config_key *key, const struct value *v,
                           struct dl_error *err)
{
    const char *words = key->type->right;
    size_t len = v->type == VALUE_STRING ? strlen(v->string) : 0, n;
    char right[64];
    unsigned number = 0;

    for (const char *word = words; len > 0; word += n + strlen(", "), number++) {
        n = strcspn(word, ",");
        if (n == len && memcmp(word, v->string, n) == 0) {
            static_assert(sizeof(enum config_sandbox) == sizeof number, "enums are such");
            memcpy(at, &number, sizeof number);
            return 0;
        }
        if (!word[n])
            break;
    }
    snprintf(right, sizeof right, "one of %s", words);
    return config_refuse_value(err, key, v, right);
}

static int config_set_backend(void *at, const struct config_key *key, const struct value *v,
                              struct dl_error *err)
{
    if (v->type == VALUE_STRING && strcmp(v->string, "etcd-v2") == 0)
        return config_refuse_value(
            err, key, v,
            "a store of dloaderd, but torchrun's name for etcd by its API v2, "
            "which etcd 3.6 no longer has: write etcd, which is API v3");
    return config_set_word(at, key, v, err);
}

/* ---- the tables ------------------------------------------------------------------------------ */

#define DIRECTORIES "a list of directories"

static const struct config_type
    config_STRING = {config_set_string, "a string"},
    config_MODE = {config_set_mode, "an octal mode in quotes such as \"0660\""},
    config_LIST = {config_set_list, DIRECTORIES, config_add_directory},
    config_ROOTS = {config_set_list, DIRECTORIES, config_add_root},
    config_PROGRAMS = {config_set_list, "a list of programs", config_add_program},
    config_FILES = {config_set_list, "a list of files", config_add_file},
    config_OBJECTS = {config_set_list, "a list of module:name", config_add_object},
    config_HELPERS = {config_set_list, "a list of HOST:PORT", config_add_helper},
    config_NETWORKS = {config_set_networks, "a network such as 169.254.0.0/16 or fe80::/10, one of "
                                            "64 at the most"},
    config_DURATION = {config_set_duration, "a duration such as 30s or 500ms"},
    config_COUNT = {config_set_count, "a positive integer"},
    config_AUTO_COUNT = {config_set_auto_count, "a positive integer, or auto"},
    config_BYTES = {config_set_bytes, "a size such as 8GiB"},
    config_RATE = {config_set_rate, "a size such as 8GiB, or none"},
    config_AUTO_BYTES = {config_set_auto_bytes, "a size such as 8GiB, or auto"},
    config_SHARE = {config_set_share, "a size such as 8GiB, or a share such as 50%"},
    config_ADDRESS = {config_set_address,
                      "an address such as 127.0.0.1:9400 or [::1]:9400, nor the "
                      "path of a socket such as /run/dloaderd/page"},
    config_LEVEL = {config_set_level, "one of error, warning, info, debug"},
    config_SANDBOX = {config_set_word, "default, strict, off"},
    config_BACKEND = {config_set_backend, "none, etcd, c10d"},
    config_HOSTING = {config_set_word, "auto, yes, no"},
    config_CHARGE = {config_set_word, "uid, cgroup"},
    config_VERSIONS = {config_set_word, "same, any"}, config_SWITCH = {config_set_word, "no, yes"},
    config_FULL = {config_set_word, "refuse, wait"},
    config_USERS = {config_set_users, "a mapping of users, such as {alice: {weight: 200}}"};

static const struct config_key config_keys[] = {
#define CONFIG(key, type, initial, meaning) \
    {#key, &config_##type, offsetof(struct config, key), initial},
#include "daemon/base/config.def"
#undef CONFIG
};

/* ---- the whole ------------------------------------------------------------------------------ */

static int config_set_default(struct config *config, const struct config_key *key)
{
    struct value v = {.type = VALUE_STRING, .string = (char *)key->initial};

    if (strcmp(key->initial, "[]") == 0 || key->type == &config_USERS) /* the only default */
        return 0;
    if (key->type == &config_COUNT)
        v = (struct value){.type = VALUE_INT, .integer = strtoll(key->initial, NULL, 10)};
    return key->type->set(config_field(config, key), key, &v, NULL);
}

const struct config_key *config_find_key(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
        if (strcmp(config_keys[i].path, path) == 0)
            return &config_keys[i];
    }
    return NULL;
}

static bool config_is_section(const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
        if (strncmp(config_keys[i].path, path, len) == 0 && config_keys[i].path[len] == '.')
            return true;
    }
    return false;
}

/* Suggests the setting that was meant, or where the key belongs. */
static int config_refuse_key(const char *path, const char *section, const char *word,
                             struct dl_error *err)
{
    size_t skip = *section ? strlen(section) + 1 : 0;
    const char *of_spec = dl_spec_word(word), *there = NULL;
    struct word_list list;

    word_list_begin(&list, word);
    for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
        const char *name = config_keys[i].path, *dot = strrchr(name, '.');

        if (strncmp(name, path, skip) == 0 && !strchr(name + skip, '.'))
            word_list_add(&list, name + skip);
        if (strcmp(dot ? dot + 1 : name, word) == 0)
            there = name;
    }
    if (there || list.best)
        return dl_error_set(
            err, EINVAL, path, "no such setting; did you mean %s%s%s? dloaderd.conf(5) lists them",
            there ? "" : section, !there && *section ? "." : "", there ? there : list.best);
    if (of_spec)
        return dl_error_set(err, EINVAL, path,
                            "no such setting; it belongs to a loader spec, as %s", of_spec);
    return dl_error_set(err, EINVAL, path, "no such setting; dloaderd.conf(5) lists them");
}

static int config_apply(struct config *config, const struct value *map, const char *section,
                        uint32_t *ret_line, struct dl_error *err)
{
    for (uint32_t i = 0; i < map->count; i++) {
        const struct value *v = &map->items[i];
        char path[DL_ERROR_PATH_MAX];
        int r;

        snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", v->key);
        /* A dot in a key of the file does not begin a section. */
        const struct config_key *key = strchr(v->key, '.') ? NULL : config_find_key(path);
        *ret_line = v->line;
        if (key)
            r = key->type->set(config_field(config, key), key, v, err);
        else if (strchr(v->key, '.') == NULL && config_is_section(path) && v->type == VALUE_MAP)
            r = config_apply(config, v, path, ret_line, err);
        else if (strchr(v->key, '.') == NULL && config_is_section(path))
            r = dl_error_set(err, EINVAL, path, "%s is not a mapping of settings",
                             value_type_name(v));
        else
            r = config_refuse_key(path, section, v->key, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int config_read_text(const char *path, const char *what, char **ret, size_t *ret_len,
                     struct dl_error *err)
{
    FILE *file = fopen(path, "re");
    _cleanup_free_ char *text = must_alloc(DL_MAX_SPEC_TEXT + 1);

    if (!file)
        return dl_error_set(err, errno, path, "cannot read the %s: %s", what, strerror(errno));
    size_t len = fread(text, 1, DL_MAX_SPEC_TEXT + 1, file);
    int failed = ferror(file) ? errno : 0;
    (void)fclose(file);
    if (failed)
        return dl_error_set(err, failed, path, "cannot read the %s: %s", what, strerror(failed));
    if (len > DL_MAX_SPEC_TEXT)
        return dl_error_set(err, EFBIG, path, "a %s has at most %llu bytes", what,
                            (ull)DL_MAX_SPEC_TEXT);
    *ret = steal_ptr(text);
    *ret_len = len;
    return 0;
}

/* Nothing but blank lines and comments: no YAML document at all. */
static bool config_says_nothing(const char *text, size_t len)
{
    bool comment = false;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n')
            comment = false;
        else if (text[i] == '#')
            comment = true;
        else if (!comment && text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    }
    return true;
}

static int config_apply_file(struct config *config, const char *path, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    uint32_t line = 0;
    int r;

    if ((r = config_read_text(path, "configuration", &text, &len, err)) < 0 ||
        config_says_nothing(text, len))
        return r;
    if ((r = yaml_parse(text, len, path, &v, err)) < 0 || v.type == VALUE_NULL)
        return r;
    if (v.type != VALUE_MAP)
        return dl_error_set(err, EINVAL, path, "the configuration is a mapping, not %s",
                            value_type_name(&v));
    r = config_apply(config, &v, "", &line, err);
    if (r < 0 && err)
        dl_error_set(err, err->code, err->path, "%s (line %u of %s)", err->message, line, path);
    return r;
}

int config_load(const char *path, struct config *ret, struct dl_error *err)
{
    _cleanup_(config_deinit) struct config config = {0};
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
        r = config_set_default(&config, &config_keys[i]);
        if (r < 0)
            return dl_error_set(err, EINVAL, config_keys[i].path, "the built-in default is wrong");
    }
    if (path && (r = config_apply_file(&config, path, err)) < 0)
        return r;
    if ((r = config_check_users(&config.limits, err)) < 0 ||
        (r = environment_complete(&config.rendezvous, err)) < 0 ||
        (r = config_read_secrets(&config, err)) < 0)
        return r;
    *ret = config;
    config = (struct config){0};
    return 0;
}

void config_deinit(struct config *config)
{
    for (size_t i = 0; i < ARRAY_SIZE(config_keys); i++) {
        const struct config_type *type = config_keys[i].type;
        void *at = config_field(config, &config_keys[i]);

        if (type == &config_STRING || type == &config_ADDRESS)
            free(*(char **)at);
        else if (type->add || type == &config_NETWORKS)
            config_dirs_deinit(at);
        else if (type == &config_USERS)
            config_users_deinit(at);
    }
    free(config->helpers.secret);
    free(config->metrics.token);
    *config = (struct config){0};
}

const char *config_interpreter(const struct config *config)
{
    const char *named = getenv("DLOADER_PYTHON");

    if (config->python.n > 0)
        return config->python.paths[0];
    return named && named[0] == '/' ? named : "/usr/bin/python3";
}

int config_find_worker(struct config *config, struct dl_error *err)
{
    char self[PATH_MAX];
    char path[PATH_MAX + 32];

    if (*config->worker) {
        if (access(config->worker, X_OK) == 0)
            return 0;
        return dl_error_set(err, errno, "worker", "%s cannot be executed: %s", config->worker,
                            strerror(errno));
    }
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len > 0) {
        self[len] = '\0';
        *strrchr(self, '/') = '\0';
        snprintf(path, sizeof path, "%s/dloader-worker", self);
        if (access(path, X_OK) == 0) {
            free(config->worker);
            config->worker = must_strdup(path);
            return 0;
        }
    }
    if (access(DLOADER_WORKER, X_OK) != 0)
        return dl_error_set(err, ENOENT, "worker",
                            "dloader-worker is neither beside dloaderd nor at " DLOADER_WORKER
                            "; %sgive its path in the configuration",
                            len < 0 ? "where dloaderd is cannot be read from /proc/self/exe: mount "
                                      "/proc, or "
                                    : "");
    free(config->worker);
    config->worker = must_strdup(DLOADER_WORKER);
    return 0;
}
