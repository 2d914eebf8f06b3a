/* bench_device.h -- `bench --shape 1.8b|7b|FOLDER`: what a backend reaches beside what its device can do. */
#ifndef CLI_BENCH_DEVICE_H
#define CLI_BENCH_DEVICE_H

/* argv as for a subcommand; exit codes of cli/cli.h.  Options:
 *   --shape 1.8b|7b|FOLDER   the model's shape
 *   --random-weights         no checkpoint: weights drawn on the device (a shape name implies it)
 *   --backend NAME           auto
 *   --rows N, --step-tokens N   0: the backend's choice
 *   --rows-list A,B,...      row counts of the step table (1,8,32,64,128,256,512)
 *   --jobs N                 offered at once (2048); 0 leaves the workloads out
 *   --context N              tokens before the step (256)
 *   --json                   one JSON object instead of tables */
int bench_device(int argc, char **argv);

#endif
