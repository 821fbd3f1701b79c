/*
 * The Example that a TFRecord's data are, in protocol buffers' wire format:
 *
 *   message Example  { Features features = 1; }
 *   message Features { map<string, Feature> feature = 1; }
 *   message Feature  { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2;
 *                                   Int64List int64_list = 3; } }
 *
 * each list with its `repeated value = 1`, packed or not. TensorFlow, core/example/example.proto
 * and feature.proto; protobuf.dev, "Encoding". Pure but for memory.
 */
#ifndef DL_DATA_TFRECORD_EXAMPLE_H
#define DL_DATA_TFRECORD_EXAMPLE_H

#include "daemon/data/field/field.h"

enum feature_kind { FEATURE_NONE, FEATURE_BYTES, FEATURE_FLOATS, FEATURE_INTS };

struct example_feature {
    const char *name; /* in the arena, NUL-terminated */
    enum feature_kind kind;
    const uint8_t *list; /* in the data: the list as a message */
    uint64_t list_bytes;
};

struct example {
    struct example_feature *features; /* in the arena; in the order of their names */
    uint32_t n;
};

/*
 * The features of the Example of `bytes` at `data`, which must stay there; those without a value
 * are left out. 0; or a negative errno with `err`, whose message continues the record's name: "is
 * not an Example".
 */
int _nodiscard_ example_parse(const uint8_t *data, uint64_t bytes, struct arena *arena,
                              struct example *ret, struct dl_error *err);

const struct example_feature *example_find(const struct example *example, const char *name);

/*
 * Adds the feature under `name`: float32 [n], int64 [n]; bytes, or a list of them unless there is
 * just one; with `image`, NULL for another, the only value is decoded. 0; or a negative errno with
 * `err`, whose message continues the feature's name. The sample's own errors stick in `ret`.
 */
int _nodiscard_ example_add(const struct example_feature *feature, const char *name,
                            const struct decoding *image, struct sample *ret, struct dl_error *err);

#endif
