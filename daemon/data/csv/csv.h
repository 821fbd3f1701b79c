/*
 * Comma-separated values: a sample is a row of one or more files in their order, with a field for
 * each column, or for each that a spec chooses.
 *
 * A column is text (string leaves) or numbers (a number of the column's type, without dimensions).
 * Its type is what the spec says of it, or what the first CSV_ROWS_JUDGED rows of the first file
 * that has rows are read as: true and false: bool; integers: int64; numbers: float64; else text. A
 * later row that is no such number is an error of its sample. An empty cell of a number is an error
 * of its sample, too, or the number that `nulls` says. Where all fields are numbers, samples are
 * rows of one shape. Opening reads the files once, to know where rows begin: about 2.3 bytes of
 * memory for a row of usual length (text_lines.h). An empty line is no row.
 */
#ifndef DL_DATA_CSV_H
#define DL_DATA_CSV_H

#include "daemon/data/dataset.h"

/* As dataset_open(). All files must have the same columns in the same order. */
int _nodiscard_ csv_open(const struct spec_dataset *spec, const char *place,
                         const struct data_env *env, struct dataset **ret, struct dl_error *err);

#endif
