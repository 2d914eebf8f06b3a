#!/usr/bin/env bash
# make chaos: workers with a fake engine against a real Kafka of three brokers, under faults drawn from a seed.
#
#   SEED=1 MINUTES=5 MODE=at_least_once|exactly_once   and, for narrower runs, WORKERS=1..3 FAULTS=kill,term,...
#   FAKE_CRASHES=2 (deaths by a job that kills; a third of them kill whenever they are run), FAKE_STEP_US=500
#   CHAOS_FLAGS="--crash-one-in 0 ..."                  further options of build/chaos (see build/chaos --help)
#
# The cluster is started for the run (CHAOS_PORT, 29092) unless KAFKA_LOCAL_DIR names one that runs.
# Exit code: 0 clean, 1 something was found or could not be started, 77 no Java or Maven here.
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build}
SEED=${SEED:-1} MINUTES=${MINUTES:-5} MODE=${MODE:-at_least_once}
export KAFKA_LOCAL_DIR=${KAFKA_LOCAL_DIR:-$PWD/$BUILD/chaos-cluster}
run=$BUILD/chaos-runs/$MODE-$SEED-$(date +%H%M%S)
own_cluster=

stop_cluster() {
    [ -z "$own_cluster" ] || ops/kafka-local/kafka.sh stop || true
}
trap stop_cluster EXIT

mkdir -p "$run"
if ! servers=$(ops/kafka-local/kafka.sh bootstrap 2>/dev/null); then
    own_cluster=yes
    servers=$(ops/kafka-local/kafka.sh start --brokers 3 --port "${CHAOS_PORT:-29092}") || exit $?
fi

# Copies, so that a build in the meantime does not change what is tested.
mkdir "$run/bin"
cp "$BUILD/chaos" "$BUILD/translate-worker" "$BUILD/translate-worker-fake.so" "$run/bin/"

name=chaos-$MODE-$SEED-$$
# shellcheck disable=SC2086 # CHAOS_FLAGS are words
FAKE_STEP_US=${FAKE_STEP_US:-500} "$run/bin/chaos" run --seed "$SEED" --minutes "$MINUTES" --mode "$MODE" \
    --bootstrap "$servers" --group "$name" --requests "$name.requests" --results "$name.results" --dead "$name.dead" \
    --workers "${WORKERS:-2}" ${FAULTS:+--faults "$FAULTS"} --dir "$run" --log "$run/generator.log" \
    --worker "$run/bin/translate-worker" ${CHAOS_FLAGS:-} | tee "$run/report"
