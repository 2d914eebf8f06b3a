#include "config/config.h"
#include "tests/support/st_writer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum err_code parse(struct config *c, const char *text, struct err *e)
{
    return config_parse_string(c, text, "worker.cfg", e);
}

struct bad {
    const char *text, *message; /* the whole message */
};

static void all_refused(const struct bad *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct config c;
        struct err e = {0};

        cr_expect_eq(parse(&c, cases[i].text, &e), ERR_CONFIG, "%s", cases[i].text);
        cr_expect_str_eq(e.msg, cases[i].message, "%s", cases[i].text);
        cr_expect_eq(e.act, ERR_STOP);
    }
}

Test(config, an_empty_file_is_every_default)
{
    struct config c;
    struct err e;

    cr_assert_eq(parse(&c, "", &e), ERR_OK, "%s", e.msg);
    cr_expect_str_eq(c.model.path, "");
    cr_expect_str_eq(c.model.prompt, "auto");
    cr_expect_str_eq(c.engine.backend, "auto");
    cr_expect_eq(c.engine.block_tokens, 16);
    cr_expect_float_eq(c.engine.gpu_memory_fraction, 0.9, 1e-12);
    cr_expect(c.engine.prefix_cache && c.engine.deterministic);
    cr_expect_eq(c.batch.linger_ms, 5);
    cr_expect_eq(c.batch.max_jobs, 64);
    cr_expect_eq(c.batch.max_tokens, 16384);
    cr_expect_eq(c.limits.max_record_bytes, 10 << 20);
    cr_expect_str_eq(c.kafka.bootstrap_servers, "localhost:9092");
    cr_expect_str_eq(c.kafka.group_id, "translate-worker");
    cr_expect_str_eq(c.kafka.assignment_strategy, "roundrobin");
    cr_expect_not_null(c.kafka.properties);
    cr_expect_null(c.kafka.properties[0]);
    cr_expect_eq(c.delivery.mode, DELIVERY_AT_LEAST_ONCE);
    cr_expect_eq(c.wire.result_encoding, WIRE_SAME);
    cr_expect_eq(c.wire.result_schema_id, -1);
    cr_expect_float_eq(c.dead_letter.max_share, 0.01, 1e-12);
    cr_expect_eq(c.http.port, 9464);
    cr_expect_eq(c.log.level, LOG_INFO);
    config_free(&c);
    config_free(&c); /* twice is fine */
}

Test(config, reads_every_kind_of_value)
{
    struct config c;
    struct err e;

    cr_assert_eq(parse(&c,
                       "// comments of all three kinds\n# here\n/* and here */\n"
                       "model: { path = \"/models/\" \"mt\"; force_template = TRUE; };\n"
                       "engine = { gpu_memory_fraction = 0.5, threads = 0x2 };\n"
                       "wire { result_encoding = \"registry\"; result_schema_id = 4294967295L; }\n"
                       "dead_letter: { max_share = 1; };\n" /* an integer where a number is wanted */
                       "kafka: { properties = ( \"security.protocol=SASL_SSL\", \"sasl.password=a=b;c\" ); };\n"
                       "log: { level = \"debug\"; };\n",
                       &e),
                 ERR_CONFIG, "wire without ':' or '=' is a parse error");
    cr_expect(strstr(e.msg, "worker.cfg:6: "), "%s", e.msg);
    cr_assert_eq(parse(&c,
                       "model: { path = \"/models/\" \"mt\"; force_template = TRUE; };\n"
                       "engine = { gpu_memory_fraction = 0.5; threads = 0x2 };\n"
                       "wire: { result_encoding = \"registry\"; result_schema_id = 4294967295; };\n"
                       "dead_letter: { max_share = 1; };\n"
                       "kafka: { properties = ( \"security.protocol=SASL_SSL\", \"sasl.password=a=b;c\" ); };\n"
                       "log: { level = \"debug\"; };\n",
                       &e),
                 ERR_OK, "%s", e.msg);
    cr_expect_str_eq(c.model.path, "/models/mt");
    cr_expect(c.model.force_template);
    cr_expect_float_eq(c.engine.gpu_memory_fraction, 0.5, 1e-12);
    cr_expect_eq(c.engine.threads, 2);
    cr_expect_eq(c.wire.result_encoding, WIRE_REGISTRY);
    cr_expect_eq(c.wire.result_schema_id, INT64_C(4294967295));
    cr_expect_float_eq(c.dead_letter.max_share, 1.0, 1e-12);
    cr_expect_str_eq(c.kafka.properties[0], "security.protocol=SASL_SSL");
    cr_expect_str_eq(c.kafka.properties[1], "sasl.password=a=b;c");
    cr_expect_null(c.kafka.properties[2]);
    cr_expect_eq(c.log.level, LOG_DEBUG);
    config_free(&c);
}

Test(config, an_error_names_file_line_key_what_was_found_and_what_is_allowed)
{
    static const struct bad cases[] = {
        /* out of range */
        {"\nkafka: {\n  partitions = 0;\n};",
         "worker.cfg:3: kafka.partitions: found 0, allowed is an integer from 1 to 10000"},
        {"http: { port = 65536; };", "worker.cfg:1: http.port: found 65536, allowed is an integer from 0 to 65535"},
        {"http: { port = -1; };", "worker.cfg:1: http.port: found -1, allowed is an integer from 0 to 65535"},
        {"http: { port = 9223372036854775807L; };",
         "worker.cfg:1: http.port: found 9223372036854775807, allowed is an integer from 0 to 65535"},
        {"http: { port = 4294967297; };",
         "worker.cfg:1: http.port: found 4294967297, allowed is an integer from 0 to 65535"},
        {"http: { port = 0x100000001; };",
         "worker.cfg:1: http.port: found 4294967297, allowed is an integer from 0 to 65535"},
        {"http: { port = 99999999999999999999; };",
         "worker.cfg:1: http.port: found 9223372036854775807, allowed is an integer from 0 to 65535"},
        {"engine: { gpu_memory_fraction = 1.5; };",
         "worker.cfg:1: engine.gpu_memory_fraction: found 1.5, allowed is a number from 0.05 to 0.99"},
        {"log: { level = \"\"; };",
         "worker.cfg:1: log.level: found \"\", allowed is one of \"error\", \"warn\", \"info\", \"debug\""},
        {"kafka: { group_id = \"\"; };",
         "worker.cfg:1: kafka.group_id: found an empty string, allowed is a string of 1 to 249 bytes"},
        {"kafka: { client_id = \"0123456789012345678901234567890123456789012345678901234567890123456789\"; };",
         "worker.cfg:1: kafka.client_id: found 70 bytes, allowed is a string of 1 to 64 bytes"},
        {"model: { name = \"a\\nb\"; };",
         "worker.cfg:1: model.name: found control characters or invalid UTF-8, allowed is text"},
        {"model: { name = \"a\xff\"; };",
         "worker.cfg:1: model.name: found control characters or invalid UTF-8, allowed is text"},
        /* mistyped */
        {"http: { port = \"9464\"; };", "worker.cfg:1: http.port: expected an integer from 0 to 65535, found a string"},
        {"http: { port = 9464.0; };",
         "worker.cfg:1: http.port: expected an integer from 0 to 65535, found a real number"},
        {"http: { port = true; };", "worker.cfg:1: http.port: expected an integer from 0 to 65535, found a boolean"},
        {"http: { port = [ 1 ]; };", "worker.cfg:1: http.port: expected an integer from 0 to 65535, found an array"},
        {"http: { port: { x = 1; }; };", "worker.cfg:1: http.port: expected an integer from 0 to 65535, found a group"},
        {"http: { enabled = 1; };", "worker.cfg:1: http.enabled: expected true or false, found an integer"},
        {"model: { path = 7; };",
         "worker.cfg:1: model.path: expected a string of at most 4000 bytes, found an integer"},
        {"log: { level = 3; };",
         "worker.cfg:1: log.level: expected one of \"error\", \"warn\", \"info\", \"debug\", found an integer"},
        {"dead_letter: { max_share = \"1%\"; };",
         "worker.cfg:1: dead_letter.max_share: expected a number from 0 to 1, found a string"},
        {"http = 1;", "worker.cfg:1: http: expected a group { ... }, found an integer"},
        {"http = ( { port = 1; } );", "worker.cfg:1: http: expected a group { ... }, found a list"},
        /* unknown */
        {"kafka: {\n\n  grup_id = \"x\"; };",
         "worker.cfg:3: kafka.grup_id is unknown; the nearest known key is kafka.group_id"},
        {"group_id = \"x\";", "worker.cfg:1: group_id is unknown; the nearest known key is kafka.group_id"},
        {"kafak: { group_id = \"x\"; };", "worker.cfg:1: group kafak is unknown; the nearest known group is kafka"},
        {"kafka: { Group_Id = \"x\"; };",
         "worker.cfg:1: kafka.Group_Id is unknown; the nearest known key is kafka.group_id"},
        /* the language itself */
        {"http: { port = 1; port = 2; };", "worker.cfg:1: duplicate setting name"},
        {"http: { port = ; };", "worker.cfg:1: syntax error"},
        {"http: {", "worker.cfg:1: syntax error"},
        {"http.port = 1;", "worker.cfg:1: syntax error"},
        {"\n  @include \"/etc/passwd\"\n",
         "worker.cfg:2: @include is not supported; use the environment for what differs"},
    };

    all_refused(cases, sizeof cases / sizeof *cases);
}

Test(config, combinations_are_checked_and_both_keys_are_named)
{
    static const struct bad cases[] = {
        {"kafka: { session_timeout_ms = 300000; };",
         "worker.cfg: kafka.session_timeout_ms = 300000 must be less than kafka.max_poll_interval_ms = 300000"},
        {"delivery: { revoke_timeout_ms = 300000; };",
         "worker.cfg: delivery.revoke_timeout_ms = 300000 must be less than kafka.max_poll_interval_ms = 300000"},
        {"batch: { max_jobs = 2000; };",
         "worker.cfg: batch.max_jobs = 2000 must be at most delivery.max_in_flight_jobs = 1024"},
        {"limits: { max_record_bytes = 1024; };",
         "worker.cfg: limits.max_text_bytes = 1048576 must be at most limits.max_record_bytes = 1024"},
        {"limits: { max_input_tokens = 512; max_sequence_tokens = 512; };",
         "worker.cfg: limits.max_input_tokens = 512 must be less than limits.max_sequence_tokens = 512"},
        {"delivery: { max_in_flight_mb = 1; };",
         "worker.cfg: limits.max_record_bytes = 10485760 must be at most delivery.max_in_flight_mb in bytes = 1048576"},
        {"retry: { backoff_ms = 20000; };",
         "worker.cfg: retry.backoff_ms = 20000 must be at most retry.backoff_max_ms = 10000"},
        {"engine: { backend = \"../gpu\"; };", "worker.cfg: engine.backend: found \"../gpu\", allowed are auto, cpu, "
                                               "cuda, or the name of a backend library in small "
                                               "letters and digits"},
        {"engine: { block_tokens = 24; };",
         "worker.cfg: engine.block_tokens: found 24, allowed are powers of two from 8 to 256"},
        {"kafka: { request_topic = \"t\"; result_topic = \"t\"; };",
         "worker.cfg: kafka.request_topic and kafka.result_topic are both \"t\": they must differ"},
        {"kafka: { dead_letter_topic = \"translate.requests\"; };",
         "worker.cfg: kafka.dead_letter_topic and kafka.request_topic are both \"translate.requests\": they must "
         "differ"},
        {"kafka: { result_topic = \"a b\"; };", "worker.cfg: kafka.result_topic: found \"a b\", allowed in a topic's "
                                                "name are letters, digits, '.', '_' and '-'"},
        {"kafka: { result_topic = \"..\"; };",
         "worker.cfg: kafka.result_topic: found \"..\", which is not the name of a topic"},
        {"kafka: { bootstrap_servers = \"\"; };",
         "worker.cfg: kafka.bootstrap_servers is missing: kafka.embedded is false"},
        {"wire: { result_encoding = \"registry\"; };",
         "worker.cfg: wire.result_schema_id is missing: wire.result_encoding is registry"},
        {"wire: { registry_url = \"user:secret@host\"; };",
         "worker.cfg: wire.registry_url: allowed are http:// and https:// addresses"},
    };
    struct config c;
    struct err e;

    all_refused(cases, sizeof cases / sizeof *cases);
    cr_expect_eq(parse(&c, "kafka: { embedded = true; bootstrap_servers = \"\"; };", &e), ERR_OK, "%s", e.msg);
    config_free(&c);
}

Test(config, properties_are_the_users_but_for_what_the_worker_owns)
{
    static const struct bad cases[] = {
        {"kafka: { properties = ( \"group.id=x\" ); };",
         "worker.cfg:1: kafka.properties[0]: group.id cannot be set here: set kafka.group_id"},
        {"kafka: { properties = [ \"a=b\", \"enable.auto.commit=true\" ]; };",
         "worker.cfg:1: kafka.properties[1]: enable.auto.commit cannot be set here: the worker commits, once results "
         "are "
         "acknowledged"},
        {"kafka: { properties = ( \"bootstrap.servers=x\" ); };",
         "worker.cfg:1: kafka.properties[0]: bootstrap.servers cannot be set here: set kafka.bootstrap_servers"},
        {"kafka: { properties = ( \"transactional.id=x\" ); };",
         "worker.cfg:1: kafka.properties[0]: transactional.id cannot be set here: set "
         "delivery.transactional_id"},
        {"kafka: { properties = ( \"isolation.level=read_uncommitted\" ); };",
         "worker.cfg:1: kafka.properties[0]: isolation.level cannot be set here: delivery depends on it"},
        {"kafka: { properties = ( \"acks=1\" ); };",
         "worker.cfg:1: kafka.properties[0]: acks cannot be set here: delivery depends on it"},
        {"kafka: { properties = ( \"sasl.password\" ); };",
         "worker.cfg:1: kafka.properties[0]: expected \"name=value\" with the name of a librdkafka property"},
        {"kafka: { properties = ( \"=x\" ); };",
         "worker.cfg:1: kafka.properties[0]: expected \"name=value\" with the name of a librdkafka property"},
        {"kafka: { properties = ( 7 ); };",
         "worker.cfg:1: kafka.properties[0]: expected a list of at most 64 strings \"name=value\", found an integer"},
        {"kafka: { properties = \"a=b\"; };",
         "worker.cfg:1: kafka.properties: expected a list of at most 64 strings \"name=value\", found a string"},
    };
    char text[4096] = "kafka: { properties = (";
    struct config c;
    struct err e;

    all_refused(cases, sizeof cases / sizeof *cases);
    for (int i = 0; i < 65; i++)
        sprintf(text + strlen(text), "%s\"p%d=v\"", i ? "," : "", i);
    strcat(text, "); };");
    cr_expect_eq(parse(&c, text, &e), ERR_CONFIG);
    cr_expect_str_eq(e.msg, "worker.cfg:1: kafka.properties[64]: found more, allowed is a list of at most 64 strings "
                            "\"name=value\"");
}

Test(config, no_message_repeats_a_secret)
{
    static const char *const texts[] = {
        "kafka: { properties = ( \"sasl password=hunter2\" ); };",
        "kafka: { properties = ( \"hunter2\" ); };",
        "kafka: { properties = ( \"sasl.password=hunter2\\n\" ); };",
        "kafka: { properties = ( \"group.id=hunter2\" ); };",
        "wire: { registry_url = \"ftp://user:hunter2@host\"; };",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct config c;
        struct err e;

        cr_assert_eq(parse(&c, texts[i], &e), ERR_CONFIG);
        cr_expect_null(strstr(e.msg, "hunter2"), "%s", e.msg);
    }
}

Test(config, the_environment_comes_after_the_file_and_the_command_line_after_both)
{
    static const char *const one[] = {"kafka.client_id=from-set", "kafka.properties=debug=broker",
                                      "kafka.properties=sasl.username=me"};
    const char *dir = st_folder("config");
    char path[256];
    struct config c;
    struct err e;

    st_write_text(dir, "w.cfg",
                  "kafka: { group_id = \"from-file\"; client_id = \"from-file\"; request_topic = \"from-file\";\n"
                  "properties = ( \"debug=all\", \"x.y=1\" ); };");
    snprintf(path, sizeof path, "%s/w.cfg", dir);
    setenv("TRANSLATE_WORKER_KAFKA_GROUP_ID", "from-environment", 1);
    setenv("TRANSLATE_WORKER_KAFKA_CLIENT_ID", "from-environment", 1);
    setenv("TRANSLATE_WORKER_KAFKA_PROPERTIES", "sasl.username=you\n\nz=2\n", 1);
    setenv("TRANSLATE_WORKER_DEAD_LETTER_MAX_SHARE", "0.25", 1);
    setenv("TRANSLATE_WORKER_WIRE_RESULT_SCHEMA_ID", "4000000000", 1);
    setenv("TRANSLATE_WORKER_HTTP_ENABLED", "false", 1);
    cr_assert_eq(config_load(&c, path, one, 3, &e), ERR_OK, "%s", e.msg);
    cr_expect_str_eq(c.kafka.request_topic, "from-file");
    cr_expect_str_eq(c.kafka.group_id, "from-environment");
    cr_expect_str_eq(c.kafka.client_id, "from-set");
    cr_expect_float_eq(c.dead_letter.max_share, 0.25, 1e-12);
    cr_expect_eq(c.wire.result_schema_id, INT64_C(4000000000));
    cr_expect_not(c.http.enabled);
    static const char *const want[] = {"debug=broker", "x.y=1", "sasl.username=me", "z=2"};
    for (int i = 0; i < 4; i++) {
        cr_assert_not_null(c.kafka.properties[i]);
        cr_expect_str_eq(c.kafka.properties[i], want[i]);
    }
    cr_expect_null(c.kafka.properties[4]);
    config_free(&c);
    setenv("TRANSLATE_WORKER_HTTP_ENABLED", "0", 1);
    cr_expect_eq(config_load(&c, NULL, NULL, 0, &e), ERR_CONFIG);
    cr_expect_str_eq(e.msg, "environment TRANSLATE_WORKER_HTTP_ENABLED: http.enabled: found \"0\", allowed is true or "
                            "false");
    st_remove(dir);
}

Test(config, overrides_are_checked_like_the_file)
{
    static const struct bad cases[] = {
        {"kafka.group_id", "--set kafka.group_id: expected group.field=value"},
        {"kafka.grup_id=x", "--set: kafka.grup_id is unknown; the nearest known key is kafka.group_id"},
        {"http.port=x", "--set: http.port: found \"x\", allowed is an integer from 0 to 65535"},
        {"http.port=", "--set: http.port: found \"\", allowed is an integer from 0 to 65535"},
        {"http.port=70000", "--set: http.port: found 70000, allowed is an integer from 0 to 65535"},
        {"http.port=99999999999999999999",
         "--set: http.port: found \"99999999999999999999\", allowed is an integer from 0 to 65535"},
        {"dead_letter.max_share=nan", "--set: dead_letter.max_share: found \"nan\", allowed is a number from 0 to 1"},
        {"kafka.properties=secret",
         "--set: kafka.properties: expected \"name=value\" with the name of a librdkafka property"},
        {"batch.max_jobs=2000", "batch.max_jobs = 2000 must be at most delivery.max_in_flight_jobs = 1024"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        struct err e;

        cr_expect_eq(config_load(&c, NULL, &cases[i].text, 1, &e), ERR_CONFIG);
        cr_expect_str_eq(e.msg, cases[i].message);
    }
}

Test(config, a_file_that_is_none_or_too_large_is_refused)
{
    const char *dir = st_folder("config");
    char *text = malloc((1 << 20) + 2), path[256];
    struct config c;
    struct err e;

    cr_expect_eq(config_load(&c, "build/tmp/gone.cfg", NULL, 0, &e), ERR_CONFIG);
    cr_expect_str_eq(e.msg, "build/tmp/gone.cfg: No such file or directory");
    cr_expect_eq(config_load(&c, dir, NULL, 0, &e), ERR_CONFIG);
    cr_expect(strstr(e.msg, "not a regular file"), "%s", e.msg);
    memset(text, '\n', (1 << 20) + 1);
    text[(1 << 20) + 1] = '\0';
    st_write_text(dir, "w.cfg", text);
    snprintf(path, sizeof path, "%s/w.cfg", dir);
    cr_expect_eq(config_load(&c, path, NULL, 0, &e), ERR_CONFIG);
    cr_expect(strstr(e.msg, "1048577 bytes, at most 1048576 are allowed"), "%s", e.msg);
    st_write_bytes(dir, "w.cfg", "a\0b", 3);
    cr_expect_eq(config_load(&c, path, NULL, 0, &e), ERR_CONFIG);
    cr_expect(strstr(e.msg, "holds a zero byte"), "%s", e.msg);
    free(text);
    st_remove(dir);
}

Test(config, cooperative_sticky_needs_a_library_that_survives_it)
{
    static const char *const set[] = {"kafka.assignment_strategy=cooperative-sticky"};
    struct config c;
    struct err e;

    cr_assert_eq(config_load(&c, NULL, NULL, 0, &e), ERR_OK, "%s", e.msg);
    cr_expect_eq(config_check_library(&c, 0x020002ff, &e), ERR_OK);
    config_free(&c);
    cr_assert_eq(config_load(&c, NULL, set, 1, &e), ERR_OK, "%s", e.msg);
    cr_expect_eq(config_check_library(&c, 0x020300ff, &e), ERR_OK);
    cr_expect_eq(config_check_library(&c, 0x020002ff, &e), ERR_CONFIG);
    cr_expect_str_eq(e.msg,
                     "kafka.assignment_strategy: cooperative-sticky needs librdkafka 2.3, this is 2.0.2; allowed "
                     "are roundrobin and range");
    config_free(&c);
}

Test(config, exactly_once_needs_a_real_broker_and_a_name)
{
    static const struct bad cases[] = {
        {"delivery: { mode = \"exactly_once\"; };",
         "worker.cfg: delivery.transactional_id (or kafka.instance_id) is missing: delivery.mode is exactly_once"},
        {"kafka: { embedded = true; }; delivery: { mode = \"exactly_once\"; transactional_id = \"a\"; };",
         "worker.cfg: delivery.mode: exactly_once needs a real Kafka: the embedded broker (kafka.embedded = true) "
         "throws "
         "the offsets of transactions away"},
    };
    struct config c;
    struct err e;

    all_refused(cases, sizeof cases / sizeof *cases);
    cr_expect_eq(parse(&c, "kafka: { instance_id = \"a\"; }; delivery: { mode = \"exactly_once\"; };", &e), ERR_OK,
                 "%s", e.msg);
    config_free(&c);
}

Test(config, committed_files_load)
{
    static const char *const files[] = {"config/worker.cfg", "config/local.cfg", "config/exactly-once.cfg"};
    struct config c;
    struct err e;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        cr_assert_eq(config_load(&c, files[i], NULL, 0, &e), ERR_OK, "%s", e.msg);
        cr_expect_eq(c.kafka.embedded, i == 1);
        config_free(&c);
    }
}
