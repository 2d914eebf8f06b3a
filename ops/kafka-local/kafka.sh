#!/bin/sh
# A real Apache Kafka (KRaft) on this machine, for tests and for trying things out.
#
#   kafka.sh start [--brokers 1|3] [--port N] [--proxy N]   fetches the jars once, starts, waits until it answers (a few
#                                               seconds); prints the bootstrap servers, the only line on standard output
#   kafka.sh stop                               all brokers, in order; the data goes too
#   kafka.sh status                             each broker and the bootstrap servers; 0 = all run, 3 = not
#   kafka.sh bootstrap                          the bootstrap servers of the running cluster
#   kafka.sh topic NAME PARTITIONS [K=V ...]    creates a topic, if it is not there, with these settings
#   kafka.sh groups                             every group: committed offsets and lag, as Kafka's own tool sees them
#   kafka.sh broker ID stop|kill|start|pause|resume   faults, one broker at a time (IDs from 1)
#   kafka.sh tool CLASS ARGS...                 any tool of Kafka's, e.g. org.apache.kafka.tools.GetOffsetShell
#
# Ports: N, N+1, N+2 for clients (default 19092), N+10... among the brokers; loopback only.  With --proxy N also +20...,
#        for proxies in front of the brokers: who comes there is sent on to N, N+1, N+2.
# Data:  KAFKA_LOCAL_DIR (build/kafka-local/cluster); jars beside it in build/kafka-local/jars.
# Needs: Java 17 or newer, and Maven for the first start.
# Exit:  0 well, 1 failed, 2 usage, 3 does not run, 77 cannot be had on this machine.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
jars=$root/build/kafka-local/jars
dir=${KAFKA_LOCAL_DIR:-$root/build/kafka-local/cluster}
start_limit_s=60
stop_limit_s=20

say()
{
    echo "kafka-local: $*" >&2
}

usage()
{
    sed -n '2,22s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

need_java()
{
    command -v java >/dev/null || {
        say "no Java here (17 or newer is needed, e.g. openjdk-17-jre-headless)"
        exit 77
    }
    major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
    [ "${major:-0}" -ge 17 ] || {
        say "Java ${major:-of unknown version} is too old, 17 or newer is needed"
        exit 77
    }
}

# Once, and again when pom.xml changed.  Whatever Maven is set up to on this machine is used.
fetch_jars()
{
    cmp -s "$here/pom.xml" "$jars/pom.xml" && return
    mkdir -p "$root/build/kafka-local"
    exec 9>"$root/build/kafka-local/fetch.lock"
    ! command -v flock >/dev/null || flock 9
    cmp -s "$here/pom.xml" "$jars/pom.xml" && return
    command -v mvn >/dev/null || {
        say "no Maven here, which fetches Kafka's jars (package maven)"
        exit 77
    }
    say "fetching Kafka's jars into build/kafka-local/jars (once, some 60 MB)"
    rm -rf "$jars" "$jars.new"
    if ! timeout 600 mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$jars.new" \
        >"$root/build/kafka-local/fetch.log" 2>&1; then
        say "Maven cannot fetch the jars (build/kafka-local/fetch.log)"
        exit 77
    fi
    cp "$here/pom.xml" "$jars.new/pom.xml"
    mv "$jars.new" "$jars"
    exec 9>&-
}

jvm()
{
    java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Dlog4j2.configurationFile=$here/log4j2.properties" \
        -cp "$jars/*" "$@"
}

is_alive()
{
    [ -s "$dir/broker-$1.pid" ] && kill -0 "$(cat "$dir/broker-$1.pid")" 2>/dev/null
}

count()
{
    cat "$dir/brokers" 2>/dev/null || echo 0
}

need_running()
{
    [ "$(count)" -gt 0 ] || {
        say "not started"
        exit 3
    }
}

write_config()
{
    n=$1 i=$2 port=$3 voters='' min=1 behind='' sends='' map=''
    if [ -n "$proxy" ]; then
        behind=,PROXY://127.0.0.1:$((port + 19 + i))
        sends=,PROXY://127.0.0.1:$((proxy + i - 1))
        map=,PROXY:PLAINTEXT
    fi
    [ "$n" -lt 3 ] || min=2
    for j in $(seq "$n"); do
        voters="$voters${voters:+,}$j@127.0.0.1:$((port + 9 + j))"
    done
    cat >"$dir/broker-$i.properties" <<EOF
process.roles=broker,controller
node.id=$i
controller.quorum.voters=$voters
listeners=PLAINTEXT://127.0.0.1:$((port + i - 1)),CONTROLLER://127.0.0.1:$((port + 9 + i))$behind
advertised.listeners=PLAINTEXT://127.0.0.1:$((port + i - 1))$sends
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT$map
log.dirs=$dir/data-$i
auto.create.topics.enable=false
default.replication.factor=$n
min.insync.replicas=$min
offsets.topic.num.partitions=4
offsets.topic.replication.factor=$n
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=$n
transaction.state.log.min.isr=$min
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=$n
share.coordinator.state.topic.min.isr=$min
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
num.io.threads=4
num.network.threads=2
log.cleaner.dedupe.buffer.size=16777216
EOF
}

# In the background, in a session of its own, so that the caller's end or Ctrl-C does not end it.
launch()
{
    : >"$dir/broker-$1.log"
    setsid java -Xmx512m -Xms128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dkafka.log.level=info \
        "-Dlog4j2.configurationFile=$here/log4j2.properties" -cp "$jars/*" kafka.Kafka "$dir/broker-$1.properties" \
        >>"$dir/broker-$1.log" 2>&1 </dev/null 9>&- &
    echo $! >"$dir/broker-$1.pid"
}

wait_ready()
{
    tries=$((start_limit_s * 10))
    while ! grep -q "Kafka Server started" "$dir/broker-$1.log"; do
        if ! is_alive "$1"; then
            tail -5 "$dir/broker-$1.log" >&2
            say "broker $1 ended by itself ($dir/broker-$1.log)"
            return 1
        fi
        tries=$((tries - 1))
        if [ "$tries" -le 0 ]; then
            say "broker $1 is not ready after $start_limit_s s ($dir/broker-$1.log)"
            return 1
        fi
        sleep 0.1
    done
}

signal_and_wait()
{
    is_alive "$1" || return 0
    kill "-$2" "$(cat "$dir/broker-$1.pid")" 2>/dev/null || return 0
    tries=$((stop_limit_s * 10))
    while is_alive "$1"; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ]; then
            say "broker $1 does not end, killed"
            kill -KILL "$(cat "$dir/broker-$1.pid")" 2>/dev/null || :
        fi
        sleep 0.1
    done
}

start()
{
    brokers=1 port=19092 proxy=
    while [ $# -gt 0 ]; do
        case $1 in
        --brokers) brokers=${2:-} && shift 2 || usage ;;
        --port) port=${2:-} && shift 2 || usage ;;
        --proxy) proxy=${2:-} && shift 2 || usage ;;
        *) usage ;;
        esac
    done
    case $brokers in 1 | 3) ;; *) usage ;; esac
    case $port in '' | *[!0-9]*) usage ;; esac
    case $proxy in *[!0-9]*) usage ;; esac
    need_java
    fetch_jars
    for i in $(seq "$(count)"); do
        if is_alive "$i"; then
            say "already running; stop it first ($dir)"
            exit 1
        fi
    done
    rm -rf "$dir"
    mkdir -p "$dir"
    id=$(jvm kafka.tools.StorageTool random-uuid 2>/dev/null)
    formats=
    for i in $(seq "$brokers"); do
        write_config "$brokers" "$i" "$port"
        jvm kafka.tools.StorageTool format -t "$id" -c "$dir/broker-$i.properties" >"$dir/format-$i.log" 2>&1 9>&- &
        formats="$formats $!"
    done
    for p in $formats; do
        wait "$p" || {
            cat "$dir"/format-*.log >&2
            say "the storage cannot be prepared"
            exit 1
        }
    done
    servers=
    for i in $(seq "$brokers"); do
        launch "$i"
        servers="$servers${servers:+,}127.0.0.1:$((port + i - 1))"
    done
    echo "$brokers" >"$dir/brokers"
    echo "$servers" >"$dir/bootstrap"
    for i in $(seq "$brokers"); do
        wait_ready "$i" || {
            stop keep
            exit 1
        }
    done
    echo "$servers"
}

# keep: the logs of a failed start stay
stop()
{
    for i in $(seq "$(count)"); do
        ! is_alive "$i" || kill -CONT "$(cat "$dir/broker-$i.pid")" 2>/dev/null || :
    done
    for i in $(seq "$(count)"); do
        signal_and_wait "$i" TERM &
    done
    wait
    if [ "${1:-}" = keep ]; then
        rm -f "$dir/brokers"
    else
        rm -rf "$dir"
    fi
}

status()
{
    need_running
    rc=0
    for i in $(seq "$(count)"); do
        if is_alive "$i"; then
            echo "broker $i runs, pid $(cat "$dir/broker-$i.pid")"
        else
            echo "broker $i does not run"
            rc=3
        fi
    done
    echo "bootstrap servers: $(cat "$dir/bootstrap")"
    exit $rc
}

topic()
{
    [ $# -ge 2 ] || usage
    need_running
    name=$1 partitions=$2
    shift 2
    for setting; do
        shift
        set -- "$@" --config "$setting"
    done
    jvm org.apache.kafka.tools.TopicCommand --bootstrap-server "$(cat "$dir/bootstrap")" --create --if-not-exists \
        --topic "$name" --partitions "$partitions" "$@" >&2
}

broker()
{
    [ $# -eq 2 ] || usage
    need_running
    case $2 in
    stop) signal_and_wait "$1" TERM ;;
    kill) signal_and_wait "$1" KILL ;;
    start)
        ! is_alive "$1" || return 0
        launch "$1"
        wait_ready "$1"
        ;;
    pause) kill -STOP "$(cat "$dir/broker-$1.pid")" ;;
    resume) kill -CONT "$(cat "$dir/broker-$1.pid")" ;;
    *) usage ;;
    esac
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
start) start "$@" ;;
stop) stop ;;
status) status ;;
bootstrap) need_running && cat "$dir/bootstrap" ;;
topic) topic "$@" ;;
groups)
    need_running
    jvm org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$(cat "$dir/bootstrap")" \
        --describe --all-groups
    ;;
broker) broker "$@" ;;
tool)
    [ $# -ge 1 ] || usage
    jvm "$@"
    ;;
*) usage ;;
esac
